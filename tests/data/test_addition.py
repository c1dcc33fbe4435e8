"""Addition in columns."""

from __future__ import annotations

import pytest

from dapo.data import DataSettings, Row, load_rows
from dapo.data.addition import _columns
from dapo.errors import DataError
from dapo.rewards import exact_number_score


def rows_of(query: str) -> list[Row]:
    return load_rows(DataSettings(dataset_path=f"task:addition?{query}"))


def pairs(query: str) -> list[tuple[int, int]]:
    return [(row.columns["a"], row.columns["b"]) for row in rows_of(query)]


def test_columns_go_from_the_right_with_the_carry_last() -> None:
    """478+56: 8+6=14, then 7+5 and 1 is 13, then 4+0 and 1 is 5: together 534."""
    assert _columns(478, 56) == "8+6=14\n7+5+1=13\n4+0+1=5"
    assert _columns(0, 0) == "0+0=0"
    assert _columns(5, 99) == "5+9=14\n0+9+1=10"  # the last column keeps both digits: 104


def test_a_row_has_a_string_prompt_a_worked_solution_and_its_parts() -> None:
    row = next(row for row in rows_of("digits=1&split=all&seed=3") if {row.columns["a"], row.columns["b"]} == {5, 7})
    assert row.prompt == row.columns["prompt"] == "7+5=\n"
    assert row.answer == row.columns["answer"] == "12"
    assert row.columns["solution"] == "7+5=12\n12"


def test_every_worked_solution_earns_the_reward_exact_number() -> None:
    for row in rows_of("digits=4&rows=200"):
        assert exact_number_score(row.columns["solution"], row.answer).value == 1.0


def test_digits_bound_both_numbers() -> None:
    assert {number for pair in pairs("digits=1&split=all") for number in pair} == set(range(10))
    assert 100 <= max(number for pair in pairs("") for number in pair) <= 999
    assert max(number for pair in pairs("digits=12&rows=50") for number in pair) >= 10**11


def test_a_small_world_has_55_sums_shared_between_the_splits() -> None:
    """One digit: 10 x 10 pairs, but a+b and b+a are one problem: 10 + 45."""
    train, heldout, both = pairs("digits=1"), pairs("digits=1&split=heldout"), pairs("digits=1&split=all")
    assert (len(both), len(train) + len(heldout)) == (55, 55)
    assert {tuple(sorted(pair)) for pair in both} == {tuple(sorted(pair)) for pair in (*train, *heldout)}
    assert 5 <= len(heldout) <= 17  # one in five of 55 is 11


def test_a_sum_and_its_mirror_are_held_out_together_whatever_the_seed() -> None:
    train = {tuple(sorted(pair)) for pair in pairs("digits=2&rows=3000&seed=1")}
    assert len(train) == 3000
    assert not train & {tuple(sorted(pair)) for pair in pairs("digits=2&rows=800&split=heldout&seed=2")}


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("digits=0", "digits is '0'"),
        ("digits=31", "fix: give a whole number from 1 to 30"),
        ("terms=2", "fix: the keys are digits, rows, split, seed"),
        ("digits=1&rows=100", "rows is 100 but only "),
    ],
)
def test_an_unknown_key_or_value_is_refused(query: str, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        rows_of(query)
    assert reason in str(caught.value)
