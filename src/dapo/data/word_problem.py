"""`task:word_problem?steps=1`: "Anna has 4 apples. Anna buys 3 more. How many apples does Anna have now? ..."."""

from __future__ import annotations

import random
from dataclasses import dataclass

from dapo.data.distinct_problems import distinct_problems
from dapo.data.question import question_row
from dapo.data.rows import Row
from dapo.data.task_query import TaskQuery

_MOST_STEPS = 20
_MOST_DIGITS = 8
_NAMES = ("Anna", "Ben", "Chen", "Dora", "Emil", "Fatima", "Goran", "Hana")
_THINGS = ("apples", "books", "coins", "eggs", "marbles", "pencils", "shells", "stamps")
_GAINS = ("buys {} more", "finds {} more", "gets {} more from a friend")
_LOSSES = ("gives {} away", "loses {}", "sells {}")


@dataclass(frozen=True)
class _Story:
    name: str
    thing: str
    terms: tuple[int, ...]
    """What there is at first, then what each step adds, or takes away if below 0."""
    events: tuple[str, ...]
    """A sentence's end for each step."""


def word_problem_rows(query: TaskQuery) -> list[Row]:
    """Distinct stories of somebody who gains and loses things in `steps` (1) steps, numbers below 10**digits (1 digit).

    Nobody ever has less than nothing. Whether a story is held out depends on its numbers alone, and none are used
    twice. Columns beside prompt and answer: terms (lost ones below 0).
    """
    query.only("steps", "digits")
    steps = query.integer("steps", 1, least=1, most=_MOST_STEPS)
    largest = 10 ** query.integer("digits", 1, least=1, most=_MOST_DIGITS) - 1
    stories = distinct_problems(
        query, lambda generator: _story(generator, steps, largest), lambda story: " ".join(map(str, story.terms))
    )
    return [_row(query, index, story) for index, story in enumerate(stories)]


def _story(generator: random.Random, steps: int, largest: int) -> _Story:
    terms, events = [generator.randint(2, largest)], []
    for _ in range(steps):
        total = sum(terms)
        gains = total == 0 or generator.random() < 0.5
        amount = generator.randint(1, largest if gains else min(total, largest))
        terms.append(amount if gains else -amount)
        events.append(generator.choice(_GAINS if gains else _LOSSES).format(amount))
    return _Story(generator.choice(_NAMES), generator.choice(_THINGS), tuple(terms), tuple(events))


def _row(query: TaskQuery, index: int, story: _Story) -> Row:
    sentences = [f"{story.name} has {story.terms[0]} {story.thing}."]
    sentences += [f"{story.name} {event}." for event in story.events]
    asked = f"How many {story.thing} does {story.name} have now? Reply with only the number."
    question = " ".join([*sentences, asked])
    return question_row(query, index, question, str(sum(story.terms)), {"terms": list(story.terms)})
