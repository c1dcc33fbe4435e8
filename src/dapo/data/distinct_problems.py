"""Drawing the problems of a procedural task whose world is too large to number."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from dapo.data.task_query import DEFAULT_ROWS, TaskQuery, part_of
from dapo.errors import DataError

T = TypeVar("T")

_HELD_OUT_PART = 0
_TRIES_PER_ROW = 50
"""Five draws find a held-out problem on average; the rest is for worlds that are nearly used up."""


def distinct_problems(
    query: TaskQuery, draw: Callable[[random.Random], T | None], identity: Callable[[T], str]
) -> list[T]:
    """The first `rows` different problems of the split that `draw` comes upon; all that it finds if rows is not given.

    draw: a problem, or None for one that came out unusable. identity: what makes two draws the same problem; whether
    it is held out depends on this text alone. Raises DataError when the split has too few problems.
    """
    generator = random.Random(query.seed)
    wanted = query.rows or DEFAULT_ROWS
    found: dict[str, T] = {}
    for _ in range(wanted * _TRIES_PER_ROW):
        if len(found) == wanted:
            break
        problem = draw(generator)
        if problem is None:
            continue
        name = identity(problem)
        held_out = part_of(name) == _HELD_OUT_PART
        if query.split == "all" or held_out == (query.split == "heldout"):
            found.setdefault(name, problem)
    if not found or (query.rows is not None and len(found) < query.rows):
        raise DataError(
            f"{query.task}: rows is {wanted} but only {len(found)} distinct problems turned up in the split "
            f"{query.split}",
            fix=f"ask for rows={max(len(found), 1)}, or for harder problems",
        )
    return list(found.values())
