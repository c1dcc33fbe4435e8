"""From answers to measures, problem by problem."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from dapo.evaluation.progress import EvalProgress
from dapo.evaluation.report import make_report, report_json
from dapo.evaluation.store import AnsweredRow
from dapo.evaluation.tables import beyond_table, measures_table, problems_table

MakeRow = Callable[..., AnsweredRow]


def printed(*parts: object) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=120)
    for part in parts:
        console.print(part)
    return stream.getvalue()


def test_each_measure_is_a_mean_over_the_problems(row: MakeRow) -> None:
    report = make_report([row(0, "7+ 7+ 8 9"), row(1, "7+ 8 8 -")], right_from=1.0, seed=1)
    assert [measure.name for measure in report.measures] == (
        ["avg@4", "pass@1", "pass@2", "pass@4", "maj@2", "maj@4", "reward", "length", "truncated"]
    )
    assert report.value("avg@4") == pytest.approx((2 / 4 + 1 / 4) / 2)
    assert report.value("pass@1") == report.value("avg@4")
    # of two: 1 - C(2,2)/C(4,2) = 5/6 and 1 - C(3,2)/C(4,2) = 1/2
    assert report.value("pass@2") == pytest.approx((5 / 6 + 1 / 2) / 2)
    assert report.value("pass@4") == 1.0
    # runs of two: (7 7) 1, (8 9) 0; (7 8) a tie, 1/2, (8 -) 0
    assert report.value("maj@2") == pytest.approx((1 / 2 + 1 / 4) / 2)
    # 7 leads the first problem, 8 the second
    assert report.value("maj@4") == 0.5


def test_lengths_rewards_and_cuts_are_counted(row: MakeRow) -> None:
    rows = [row(0, "7+ 8", length=10, reward=-1.0), row(1, "7+ 8", length=40, truncated=True, reward=2.0)]
    report = make_report(rows, right_from=1.0, seed=1)
    assert (report.value("length"), report.value("reward"), report.value("truncated")) == (25.0, 0.5, 0.5)


def test_rows_of_one_problem_are_one_problem_with_more_answers(row: MakeRow) -> None:
    # problem p is asked twice, problem q once: p has 3 of 4 right, q has 0 of 2
    rows = [row(0, "7+ 7+", prompt="p"), row(1, "8 8", prompt="q"), row(2, "7+ 8", prompt="p")]
    report = make_report(rows, right_from=1.0, seed=1)
    assert [problem.rows for problem in report.problems] == [(0, 2), (1,)]
    assert report.value("avg@2-4") == pytest.approx(3 / 8)
    assert (report.fewest, report.most) == (2, 4)
    assert "pass@2" in {measure.name for measure in report.measures}
    assert "pass@4" not in {measure.name for measure in report.measures}  # q has two answers


def test_repeated_rows_do_not_make_the_result_look_surer(row: MakeRow) -> None:
    once = [row(0, "7+ 7+", prompt="p"), row(1, "8 8", prompt="q")]
    often = [replace(kept, draw=number, row=number) for number, kept in enumerate(once * 32)]
    one, other = (make_report(rows, right_from=1.0, seed=1).measures[0] for rows in (once, often))
    # two problems, one solved always and one never: the mean of two draws can be 0 or 1
    assert (one.low, one.high) == (other.low, other.high) == (0.0, 1.0)


def test_one_prompt_with_two_references_is_two_problems(row: MakeRow) -> None:
    rows = [row(0, "7+", prompt="p"), row(1, "7", prompt="p", reference="8")]
    assert len(make_report(rows, right_from=1.0, seed=1).problems) == 2


@pytest.mark.parametrize(("right_from", "accuracy"), [(0.5, 1.0), (0.6, 0.0)])
def test_right_from_is_the_least_score_of_a_right_answer(row: MakeRow, right_from: float, accuracy: float) -> None:
    assert make_report([row(0, "7 7", score=0.5)], right_from=right_from, seed=1).value("avg@2") == accuracy


def test_without_votes_there_is_no_majority(row: MakeRow) -> None:
    report = make_report([row(0, "- - -")], right_from=1.0, seed=1)
    assert not [measure for measure in report.measures if measure.name.startswith("maj")]
    assert report.problems[0].majority is None


def test_the_order_in_which_rows_were_finished_does_not_matter(row: MakeRow) -> None:
    rows = [row(number, "7+ 8" if number % 3 else "8 8") for number in range(7)]
    assert make_report(rows, right_from=1.0, seed=1) == make_report(rows[::-1], right_from=1.0, seed=1)


def test_the_json_holds_measures_and_every_problem(row: MakeRow) -> None:
    content = report_json(make_report([row(0, "7+ 8 8"), row(1, "7+ 7+ 7+")], right_from=1.0, seed=1))
    assert content["metrics"]["avg@3"]["value"] == pytest.approx(2 / 3)
    assert content["problems"] == 2
    assert content["answers_per_problem"] == {"fewest": 3, "most": 3}
    first = content["per_problem"][0]
    assert (first["rows"], first["answers"], first["right"], first["majority"]) == ([0], 3, 1, "8")


def test_the_tables_name_what_was_measured(row: MakeRow) -> None:
    report = make_report(
        [row(0, "7+ 8", prompt="What is 3+4?"), row(1, "8 8", prompt="What is 4+3?")], right_from=1.0, seed=1
    )
    text = printed(measures_table(report), problems_table(report))
    assert "2 problems" in text
    assert "avg@2        0.250   0.000 to 0.500" in text
    assert "1/2" in text
    assert " 3+4?" in text
    assert "What is" not in text  # all problems begin with it
    assert beyond_table(report) is None


def test_a_long_table_is_cut_and_says_so(row: MakeRow) -> None:
    report = make_report([row(number, "7+") for number in range(53)], right_from=1.0, seed=1)
    assert problems_table(report).row_count == 50
    assert beyond_table(report) == "and 3 more, all in results.json"


def test_a_hostile_problem_does_not_reach_the_terminal(row: MakeRow) -> None:
    report = make_report([row(0, "\x1b[2J", prompt="\x1b[31mred [bold]x[/bold]")], right_from=1.0, seed=1)
    text = printed(problems_table(report))
    assert "\x1b" not in text
    assert "[bold]x[/bold]" in text


def test_progress_tells_how_long_the_rest_takes() -> None:
    now = [0.0]
    stream = io.StringIO()
    with EvalProgress(stream, clock=lambda: now[0]) as progress:
        progress.begin(40)
        now[0] = 20.0
        progress.advance(5, 1000)
        assert stream.getvalue() == ""  # not yet half a minute of silence
        now[0] = 60.0
        progress.advance(10, 3000)  # 10 answers a minute, 30 are left
        progress.advance(11, 3100)
    assert stream.getvalue() == "10 of 40 answers, 50 tok/s, about 3 min left\n"
