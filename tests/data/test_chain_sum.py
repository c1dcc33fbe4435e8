"""Sums from left to right."""

from __future__ import annotations

import pytest

from dapo.data import DataSettings, Row, load_rows
from dapo.data.chain_sum import _row
from dapo.data.task_query import TaskQuery
from dapo.errors import DataError
from dapo.rewards import exact_number_score

QUERY = TaskQuery("task:chain_sum", rows=None, split="all", seed=0, others={})


def rows_of(query: str) -> list[Row]:
    return load_rows(DataSettings(dataset_path=f"task:chain_sum?{query}"))


def test_the_solution_keeps_a_running_total() -> None:
    """12+7 is 19; 19-35 is -16; -16-4 is -20."""
    row = _row(QUERY, 4, (12, 7, -35, -4), rechecks=0)
    assert row.prompt == "12+7-35-4=\n"
    assert row.columns["solution"] == "12+7=19\n19-35=-16\n-16-4=-20"
    assert (row.answer, row.columns["answer"], row.columns["terms"]) == ("-20", "-20", [12, 7, -35, -4])
    assert (row.index, row.place) == (4, "task:chain_sum row 5")


def test_a_solution_that_rechecks_goes_through_its_lines_again() -> None:
    """Never, once or twice, by one chance in two each: of 400 about 200, 100 and 100, with deviations of 10 and 9."""
    times = []
    for row in rows_of("terms=3&rechecks=2&rows=400"):
        plain = _row(QUERY, 0, tuple(row.columns["terms"]), rechecks=0).columns["solution"]
        lines = str(row.columns["solution"]).split("\n")
        assert lines == plain.split("\n") * (len(lines) // 2)  # three terms are two lines
        times.append(len(lines) // 2)
    assert [abs(times.count(number) - about) < 50 for number, about in ((1, 200), (2, 100), (3, 100))] == [True] * 3


def test_every_worked_solution_earns_the_reward_exact_number() -> None:
    rows = rows_of("terms=6&digits=2&rechecks=3&rows=200")
    assert any(row.answer.startswith("-") for row in rows)
    for row in rows:
        assert exact_number_score(row.columns["solution"], row.answer).value == 1.0


def test_terms_and_digits_shape_the_chain() -> None:
    default, long = rows_of("rows=300"), rows_of("terms=7&digits=1&rows=300")
    assert {len(row.columns["terms"]) for row in default} == {4}
    assert {len(row.columns["terms"]) for row in long} == {7}
    assert {abs(term) for row in long for term in row.columns["terms"]} == set(range(1, 10))
    assert 90 <= max(abs(term) for row in default for term in row.columns["terms"]) <= 99
    assert all(row.columns["terms"][0] > 0 for row in default)
    mixed = rows_of("terms=5&fewest=3&digits=1&rows=300")
    assert {len(row.columns["terms"]) for row in mixed} == {3, 4, 5}
    assert {term > 0 for row in default for term in row.columns["terms"][1:]} == {True, False}


def test_no_chain_is_in_both_splits_whatever_the_seed() -> None:
    """Two terms of one digit are 9 x 9 x 2 = 162 chains, which the two splits share out."""
    train = {str(row.prompt) for row in rows_of("terms=2&digits=1&seed=1")}
    heldout = {str(row.prompt) for row in rows_of("terms=2&digits=1&split=heldout&seed=2")}
    assert not train & heldout
    assert len(train | heldout) == 162


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("terms=1", "terms is '1'"),
        ("terms=51", "fix: give a whole number from 2 to 50"),
        ("terms=3&fewest=4", "fix: give a whole number from 2 to 3"),
        ("rechecks=10", "fix: give a whole number from 0 to 9"),
        ("digits=9", "fix: give a whole number from 1 to 8"),
        ("term=2", "fix: the keys are terms, fewest, digits, rechecks, rows, split, seed"),
    ],
)
def test_an_unknown_key_or_value_is_refused(query: str, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        rows_of(query)
    assert reason in str(caught.value)
