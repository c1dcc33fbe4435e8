"""Countdown: problems that can be solved, and searches that solve them."""

from __future__ import annotations

import re

import pytest

from dapo.data import DataSettings, Row, load_rows
from dapo.data.countdown import _expressions, _written_out
from dapo.errors import DataError
from dapo.rewards.countdown import countdown_score, final_expression


def rows_of(query: str) -> list[Row]:
    return load_rows(DataSettings(dataset_path=f"task:countdown?{query}"))


def ways(*numbers: int) -> dict[str, int]:
    return dict(_expressions([(str(number), number) for number in numbers]))


def test_an_expression_is_written_out_one_operation_at_a_time() -> None:
    assert _written_out("(8*3)-12") == "(8*3)-12=24-12=12"
    assert _written_out("20-(5*3)") == "20-(5*3)=20-15=5"
    assert _written_out("(7-5)*(3+4)") == "(7-5)*(3+4)=2*(3+4)=2*7=14"
    assert _written_out("((7-5)*3)+4") == "((7-5)*3)+4=(2*3)+4=6+4=10"


def test_expressions_put_the_larger_side_first_and_stay_from_1_to_99() -> None:
    """With 1, 2 and 60. First 2 and 1: 3 (then 60 + or - it), 1 (+ - *), 2 (+ -), since 60*3 and 60*2 are too much.

    First 60 and 1: 61, 59 and 60, each then + or - 2. First 60 and 2: 62 and 58, each then + - * 1. That is 7+6+6.
    """
    found = ways(1, 2, 60)
    assert len(found) == 19
    assert (found["60-(2-1)"], found["(60-2)+1"], found["60-(2*1)"], found["(60+2)*1"]) == (59, 59, 58, 62)
    assert all(text.startswith(("60", "(60")) for text in found)
    assert all(1 <= value <= 99 for value in found.values())
    assert ways(99, 99, 99) == {}  # 198, 0 and 9801


def test_a_solution_tries_what_misses_each_once_and_ends_with_what_hits() -> None:
    for row in rows_of("rows=40"):
        *misses, hit = row.columns["solution"].split("\n")
        assert row.prompt == f"{row.answer}\n"
        assert hit.endswith(f"={row.columns['target']}")
        assert len(set(misses)) == len(misses)
        for line in misses:
            assert countdown_score(line, row.answer).value == 0.0
            assert sorted(map(int, re.findall(r"\d+", final_expression(line)))) == row.columns["numbers"]


def test_attempts_come_in_no_fixed_order() -> None:
    """Were they tried as they are listed, the first would always begin with a sum, in brackets."""
    worked = [row.columns["solution"] for row in rows_of("rows=100")]
    inner = [re.search(r"\(\d+(.)", text.split("\n")[0]) for text in worked if "\n" in text]
    assert {match[1] for match in inner if match} == {"+", "-", "*"}


@pytest.mark.parametrize("count", [3, 4])
def test_every_solution_earns_the_reward_countdown(count: int) -> None:
    for row in rows_of(f"numbers={count}&rows=60"):
        assert countdown_score(row.columns["solution"], row.answer).value == 1.0
        assert len(row.columns["numbers"]) == count
        assert row.answer == f"{' '.join(map(str, row.columns['numbers']))} = {row.columns['target']}"


def test_lengths_differ_with_a_long_tail() -> None:
    """After each miss another follows with chance 3/4: none in a quarter, 3 on average, over 10 in 0.75^11 = 4%."""
    misses = [row.columns["solution"].count("\n") for row in rows_of("rows=1000")]
    assert 200 <= misses.count(0) <= 300
    assert 2.4 <= sum(misses) / 1000 <= 3.3  # problems with few expressions end sooner
    assert 15 <= sum(miss > 10 for miss in misses) <= 60


def test_a_problem_has_one_solution_however_it_was_drawn() -> None:
    first = {row.answer: row.columns["solution"] for row in rows_of("rows=300&largest=6&seed=1")}
    second = {row.answer: row.columns["solution"] for row in rows_of("rows=300&largest=6&seed=2")}
    shared = first.keys() & second.keys()
    assert len(shared) > 50
    assert all(first[answer] == second[answer] for answer in shared)


def test_numbers_and_largest_shape_the_problem() -> None:
    numbers = [number for row in rows_of("rows=300") for number in row.columns["numbers"]]
    assert set(numbers) == set(range(1, 21))
    assert {number for row in rows_of("rows=300&largest=7") for number in row.columns["numbers"]} == set(range(1, 8))
    assert {len(row.columns["numbers"]) for row in rows_of("rows=20")} == {3}
    assert {len(row.columns["numbers"]) for row in rows_of("rows=20&numbers=4")} == {4}


def test_no_problem_is_in_both_splits_whatever_the_seed_or_the_largest_number() -> None:
    train = {row.answer for row in rows_of("largest=6&seed=1")} | {row.answer for row in rows_of("largest=9&rows=800")}
    heldout = [row.answer for row in rows_of("largest=6&split=heldout&seed=2")]
    assert len(train) > 900
    assert heldout
    assert not train & set(heldout)


def test_the_seed_chooses_the_problems() -> None:
    def answers(query: str) -> list[str]:
        return [row.answer for row in rows_of(query)]

    assert answers("rows=9&seed=1") == answers("rows=20&seed=1")[:9]
    assert answers("rows=9&seed=1") != answers("rows=9")


def test_the_problems_are_the_same_on_every_machine() -> None:
    """Pinned, so that a new Python or platform that draws other problems is noticed."""
    assert [row.answer for row in rows_of("rows=3")] == ["2 13 14 = 15", "13 16 17 = 64", "10 12 16 = 38"]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("numbers=2", "numbers is '2'"),
        ("numbers=5", "fix: give a whole number from 3 to 4"),
        ("largest=100", "fix: give a whole number from 2 to 99"),
        ("digits=1", "fix: the keys are numbers, largest, rows, split, seed"),
        ("largest=2&rows=500", "rows is 500 but only "),
    ],
)
def test_an_unknown_key_or_value_is_refused(query: str, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        rows_of(query)
    assert reason in str(caught.value)
