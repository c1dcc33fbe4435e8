"""Problems that are made, not read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dapo.data import DataSettings, Row, load_rows
from dapo.errors import DataError


def rows_of(task: str) -> list[Row]:
    return load_rows(DataSettings(dataset_path=task))


def problems(task: str) -> list[tuple[int, str, int]]:
    return [(row.columns["a"], row.columns["operation"], row.columns["b"]) for row in rows_of(task)]


def problem(task: str) -> str:
    with pytest.raises(DataError) as caught:
        rows_of(task)
    assert caught.value.fix
    return str(caught.value)


def test_one_digit_addition_has_80_problems_to_learn_and_20_held_out() -> None:
    """10 x 10 pairs, one in five held out."""
    train, heldout = problems("task:arithmetic"), problems("task:arithmetic?split=heldout")
    assert (len(train), len(heldout)) == (80, 20)
    assert {*train, *heldout} == {(a, "+", b) for a in range(10) for b in range(10)}
    assert sorted(problems("task:arithmetic?split=all")) == sorted(train + heldout)


def test_a_row_asks_in_chat_and_in_plain_words_and_knows_the_answer() -> None:
    by_problem = {(row.columns["a"], row.columns["b"]): row for row in rows_of("task:arithmetic?split=all")}
    row = by_problem[3, 4]
    assert row.prompt == ({"role": "user", "content": "What is 3+4? Reply with only the number."},)
    assert row.plain_prompt == "What is 3+4? Reply with only the number.\n"
    assert row.answer == row.columns["answer"] == "7"
    assert row.columns["prompt"] == list(row.prompt)
    assert [each.index for each in by_problem.values()] == list(range(100))


@pytest.mark.parametrize("operations", ["+-*", "%2B-%2A"])
def test_operations_are_taken_literally_and_url_encoded(operations: str) -> None:
    rows = rows_of(f"task:arithmetic?operations={operations}&split=all")
    answers = {(row.columns["a"], row.columns["operation"], row.columns["b"]): row.answer for row in rows}
    assert len(answers) == 300
    assert (answers[2, "+", 9], answers[2, "-", 9], answers[2, "*", 9]) == ("11", "-7", "18")


def test_more_digits_give_distinct_problems_and_never_share_them() -> None:
    train = problems("task:arithmetic?digits=3")
    heldout = problems("task:arithmetic?digits=3&split=heldout&seed=5")
    assert len(set(train)) == len(train) == 1000
    assert len(set(heldout)) == len(heldout) == 1000
    assert not set(train) & set(heldout)
    assert 100 <= max(a for a, _, _ in train) <= 999


def test_whether_a_problem_is_held_out_depends_on_the_problem_alone() -> None:
    """Training with one seed and evaluating with another must not leak, nor 1 digit into 2, nor + into +*."""
    train = {*problems("task:arithmetic?seed=1"), *problems("task:arithmetic?digits=2&rows=8000&operations=%2B*")}
    for heldout in ("task:arithmetic?split=heldout&seed=2", "task:arithmetic?split=heldout&digits=2&rows=2000"):
        assert not train & set(problems(heldout))


def test_rows_and_seed_choose_the_problems_and_their_order() -> None:
    first = problems("task:arithmetic?digits=2&rows=7")
    assert len(first) == 7
    assert problems("task:arithmetic?digits=2&rows=7") == first
    assert problems("task:arithmetic?digits=2&rows=7&seed=1") != first


def test_the_order_is_the_same_on_every_machine() -> None:
    """Pinned, so that a new Python or platform that draws other problems is noticed."""
    assert problems("task:arithmetic?rows=3") == [(6, "+", 1), (6, "+", 6), (0, "+", 6)]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("rows=81", "rows is 81 but the split train has 80 distinct problems"),
        ("rows=21&split=heldout", "the split heldout has 20 distinct problems"),
        ("rows=0", "rows is '0'"),
        ("rows=ten", "rows is 'ten'"),
        ("digits=0", "digits is '0'"),
        ("digits=9", "fix: give a whole number from 1 to 8"),
        ("operations=", "operations is ''"),
        ("operations=/", "operations is '/'"),
        ("operations=++", "operations is '++'"),
        ("split=test", "fix: use one of train, heldout, all"),
        ("seed=-1", "seed is '-1'"),
        ("seed=1&seed=2", "seed is given twice"),
        ("digit=1", "fix: the keys are digits, operations, rows, split, seed"),
        ("digits", "cannot read 'digits'"),
        ("digits=²", "digits is '²'"),
    ],
)
def test_an_unknown_key_or_value_lists_the_known(query: str, reason: str) -> None:
    assert reason in problem(f"task:arithmetic?{query}")


def test_an_unknown_task_suggests_the_nearest() -> None:
    assert "did you mean task:arithmetic?" in problem("task:arithmetics")
    assert (
        "tasks: addition, arithmetic, chain_sum, comparison, countdown, word_problem, reasoning_gym/<name>"
        in problem("task:")
    )


def test_a_task_is_never_looked_up_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task:arithmetic").mkdir()
    assert len(rows_of("task:arithmetic")) == 80


def test_reasoning_gym_gives_question_answer_and_metadata() -> None:
    row = rows_of("task:reasoning_gym/chain_sum?rows=3&min_terms=2&max_terms=2&min_digits=1&max_digits=1")[2]
    question = row.columns["question"]
    assert row.prompt == ({"role": "user", "content": question},)
    assert row.plain_prompt == question + "\n"
    assert row.columns["metadata"]["source_dataset"] == "chain_sum"
    left, sign, right = question.removeprefix("State the final answer to the following arithmetic problem: ").split()[
        :3
    ]
    assert int(row.answer) == int(left) + (1 if sign == "+" else -1) * int(right)
    assert row.index == 2


def test_reasoning_gym_splits_never_share_a_question_even_in_a_small_world() -> None:
    """One-digit sums of two terms repeat often: 200 rows of at most 180 questions."""
    settings = "min_terms=2&max_terms=2&min_digits=1&max_digits=1"
    train = rows_of(f"task:reasoning_gym/chain_sum?rows=200&{settings}")
    heldout = rows_of(f"task:reasoning_gym/chain_sum?rows=40&split=heldout&seed=9&{settings}")
    assert (len(train), len(heldout)) == (200, 40)
    assert not {row.columns["question"] for row in train} & {row.columns["question"] for row in heldout}


def test_the_split_all_takes_what_the_generator_makes_as_it_comes() -> None:
    """The generator numbers what it makes; leaving held-out questions out would leave gaps."""
    rows = rows_of("task:reasoning_gym/chain_sum?rows=30&split=all")
    assert [row.columns["metadata"]["source_index"] for row in rows] == list(range(30))


def test_reasoning_gym_rows_depend_on_the_seed_only() -> None:
    def questions(seed: int) -> list[str]:
        return [row.columns["question"] for row in rows_of(f"task:reasoning_gym/gcd?rows=5&seed={seed}&split=all")]

    assert questions(0) == questions(0)
    assert questions(0) != questions(1)


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("chainsum", "did you mean task:reasoning_gym/chain_sum?"),
        ("", "has no task ''"),
        ("chain_sum?terms=2", "min_terms"),
        ("chain_sum?size=2", "unknown key 'size'"),
        ("chain_sum?min_terms=-1", "the generator failed: min_terms must be positive"),
        ("chain_sum?min_terms=two", "the generator failed"),
        ("chain_sum?rows=0", "rows is '0'"),
        ("composite", "the generator failed"),
    ],
)
def test_reasoning_gym_mistakes_are_explained(task: str, reason: str) -> None:
    assert reason in problem(f"task:reasoning_gym/{task}")


def test_reasoning_gym_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    assert 'fix: pip install "dapo-rl[reasoning-gym]"' in problem("task:reasoning_gym/chain_sum")
