"""`task:comparison?digits=2`: "Which is larger, 37 or 52? Reply with only the number."."""

from __future__ import annotations

import random

from dapo.data.distinct_problems import distinct_problems
from dapo.data.question import question_row
from dapo.data.rows import Row
from dapo.data.task_query import TaskQuery

_MOST_DIGITS = 30


def comparison_rows(query: TaskQuery) -> list[Row]:
    """Distinct pairs of different numbers from 0 to 10**digits - 1 (2 digits by default), in either order.

    A pair is asked about once, whichever number comes first. Columns beside prompt and answer: a, b.
    """
    query.only("digits")
    largest = 10 ** query.integer("digits", 2, least=1, most=_MOST_DIGITS) - 1

    def draw(generator: random.Random) -> tuple[int, int] | None:
        a, b = generator.randint(0, largest), generator.randint(0, largest)
        return (a, b) if a != b else None

    problems = distinct_problems(query, draw, lambda pair: f"{min(pair)} {max(pair)}")
    return [_row(query, index, a, b) for index, (a, b) in enumerate(problems)]


def _row(query: TaskQuery, index: int, a: int, b: int) -> Row:
    question = f"Which is larger, {a} or {b}? Reply with only the number."
    return question_row(query, index, question, str(max(a, b)), {"a": a, "b": b})
