"""Comparisons and word problems: questions in words, answered by a number."""

from __future__ import annotations

import random

import pytest

from dapo.data import DataSettings, Row, load_rows
from dapo.data.task_query import TaskQuery
from dapo.data.word_problem import _row, _Story, _story
from dapo.errors import DataError


def rows_of(task: str) -> list[Row]:
    return load_rows(DataSettings(dataset_path=f"task:{task}"))


def test_a_comparison_asks_for_the_larger_of_two_different_numbers() -> None:
    rows = rows_of("comparison?rows=300")
    for row in rows:
        a, b = row.columns["a"], row.columns["b"]
        assert row.columns["prompt"][0]["content"] == f"Which is larger, {a} or {b}? Reply with only the number."
        assert row.answer == str(a if a > b else b)
        assert 0 <= min(a, b) < max(a, b) <= 99
    first_is_larger = sum(row.columns["a"] > row.columns["b"] for row in rows)
    assert 100 < first_is_larger < 200  # 150 expected, deviation 9: the place of a number says nothing


def test_a_pair_is_compared_once_and_in_one_split() -> None:
    """10 numbers make 45 pairs."""
    pairs = [
        {(row.columns["a"], row.columns["b"]) for row in rows_of(f"comparison?digits=1&split={split}")}
        for split in ("train", "heldout")
    ]
    unordered = [frozenset(pair) for of_split in pairs for pair in of_split]
    assert len(unordered) == len(set(unordered)) == 45


def test_a_story_tells_what_each_step_adds_and_takes_away() -> None:
    """4, 3 more are 7, 5 of them given away leave 2."""
    query = TaskQuery("task:word_problem", rows=None, split="all", seed=0, others={})
    row = _row(query, 1, _Story("Anna", "apples", (4, 3, -5), ("buys 3 more", "gives 5 away")))
    question = (
        "Anna has 4 apples. Anna buys 3 more. Anna gives 5 away. How many apples does Anna have now? "
        "Reply with only the number."
    )
    assert row.prompt == ({"role": "user", "content": question},)
    assert row.plain_prompt == question + "\n"
    assert (row.answer, row.columns["answer"], row.columns["terms"]) == ("2", "2", [4, 3, -5])
    assert (row.index, row.place) == (1, "task:word_problem row 2")


def test_nobody_ever_has_less_than_nothing_and_every_number_stands_in_the_text() -> None:
    for number in range(300):
        story = _story(random.Random(number), steps=5, largest=9)
        assert min(sum(story.terms[:length]) for length in range(1, 7)) >= 0
        assert all(str(abs(term)) in event for term, event in zip(story.terms[1:], story.events, strict=True))
    assert {term > 0 for term in story.terms} == {True, False}


def test_stories_of_one_step_are_each_told_once_and_in_one_split() -> None:
    """2 to 9 things: 9 gains each, and as many losses as there are things, 2 + 3 + ... + 9 = 44. 8 x 9 + 44 = 116."""
    train, heldout = (
        [tuple(row.columns["terms"]) for row in rows_of(f"word_problem?split={split}")]
        for split in ("train", "heldout")
    )
    assert len([*train, *heldout]) == len({*train, *heldout}) == 116
    assert len(heldout) == 17


def test_steps_and_digits_shape_the_story() -> None:
    rows = rows_of("word_problem?steps=3&digits=2&rows=100")
    assert {len(row.columns["terms"]) for row in rows} == {4}
    assert max(max(row.columns["terms"]) for row in rows) > 80


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("comparison?digits=0", "fix: give a whole number from 1 to 30"),
        ("comparison?terms=2", "fix: the keys are digits, rows, split, seed"),
        ("comparison?digits=1&rows=46&split=all", "only 45 distinct problems"),
        ("word_problem?steps=0", "fix: give a whole number from 1 to 20"),
        ("word_problem?digits=9", "fix: give a whole number from 1 to 8"),
        ("word_problem?step=2", "fix: the keys are steps, digits, rows, split, seed"),
    ],
)
def test_an_unknown_key_or_value_is_refused(query: str, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        rows_of(query)
    assert reason in str(caught.value)
