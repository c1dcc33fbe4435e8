"""The built-in task: `task:arithmetic?digits=1&operations=+-*`."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable

from dapo.data.question import question_row
from dapo.data.rows import Row
from dapo.data.task_query import DEFAULT_ROWS, PARTS, TaskQuery, part_of
from dapo.errors import DataError

_OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_MOST_DIGITS = 8


def arithmetic_rows(query: TaskQuery) -> list[Row]:
    """Distinct problems `a operation b` with a and b from 0 to 10**digits - 1 (digits 1, operations + by default).

    Of five neighbours a+0 .. a+4, a+5 .. a+9 and so on exactly one is held out, so that one-digit addition has
    80 problems in train and 20 in heldout.
    """
    query.only("digits", "operations")
    size = 10 ** query.integer("digits", 1, least=1, most=_MOST_DIGITS)
    operations = query.others.get("operations", "+")
    if not operations or set(operations) - _OPERATIONS.keys() or len(set(operations)) < len(operations):
        raise DataError(
            f"{query.task}: operations is {operations!r}", fix=f"use some of {''.join(_OPERATIONS)}, each once"
        )
    members = {"train": PARTS - 1, "heldout": 1, "all": PARTS}[query.split]
    available = len(operations) * size * (size // PARTS) * members
    if query.rows is not None and query.rows > available:
        raise DataError(
            f"{query.task}: rows is {query.rows} but the split {query.split} has {available} distinct problems",
            fix=f"ask for at most {available} rows, or more digits",
        )
    rows = min(DEFAULT_ROWS, available) if query.rows is None else query.rows
    chosen = random.Random(query.seed).sample(range(available), rows)
    return [
        _row(query, index, *_problem(number, operations, size, query.split, members))
        for index, number in enumerate(chosen)
    ]


def _problem(number: int, operations: str, size: int, split: str, members: int) -> tuple[int, str, int]:
    """The problem with this number in its split: a, operation, b. Different numbers are different problems."""
    block, member = divmod(number, members)
    rest, block_of_b = divmod(block, size // PARTS)
    which, a = divmod(rest, size)
    operation = operations[which]
    held_out = part_of(f"{a}{operation}{block_of_b}")
    choices = {
        "train": [part for part in range(PARTS) if part != held_out],
        "heldout": [held_out],
        "all": list(range(PARTS)),
    }[split]
    return a, operation, block_of_b * PARTS + choices[member]


def _row(query: TaskQuery, index: int, a: int, operation: str, b: int) -> Row:
    question = f"What is {a}{operation}{b}? Reply with only the number."
    answer = str(_OPERATIONS[operation](a, b))
    return question_row(query, index, question, answer, {"a": a, "b": b, "operation": operation})
