"""`task:addition?digits=3`: add two numbers in columns, from the right.

478+56=                     the prompt
8+6=14                      a line for each column, the carry added last
7+5+1=13
4+0+1=5
534
"""

from __future__ import annotations

import random

from dapo.data.distinct_problems import distinct_problems
from dapo.data.rows import Row
from dapo.data.task_query import TaskQuery

_MOST_DIGITS = 30


def addition_rows(query: TaskQuery) -> list[Row]:
    """Distinct problems `a+b` with a and b from 0 to 10**digits - 1 (3 digits by default).

    a+b and b+a are held out together. Columns beside prompt and answer: solution, a, b.
    """
    query.only("digits")
    largest = 10 ** query.integer("digits", 3, least=1, most=_MOST_DIGITS) - 1

    def draw(generator: random.Random) -> tuple[int, int]:
        return generator.randint(0, largest), generator.randint(0, largest)

    problems = distinct_problems(query, draw, lambda pair: f"{min(pair)}+{max(pair)}")
    return [_row(query, index, a, b) for index, (a, b) in enumerate(problems)]


def _row(query: TaskQuery, index: int, a: int, b: int) -> Row:
    prompt, answer = f"{a}+{b}=\n", str(a + b)
    columns = {"prompt": prompt, "answer": answer, "solution": f"{_columns(a, b)}\n{answer}", "a": a, "b": b}
    return Row(index, f"{query.task} row {index + 1}", prompt, answer, columns)


def _columns(a: int, b: int) -> str:
    """One line for each digit of the longer number."""
    length = max(len(str(a)), len(str(b)))
    lines, carry = [], 0
    for upper, lower in zip(reversed(f"{a:0{length}}"), reversed(f"{b:0{length}}"), strict=True):
        total = int(upper) + int(lower) + carry
        lines.append(f"{upper}+{lower}{'+1' if carry else ''}={total}")
        carry = total // 10
    return "\n".join(lines)
