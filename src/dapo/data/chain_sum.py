"""`task:chain_sum?terms=4&digits=2`: add and subtract from left to right, with running totals.

12+7-35=                    the prompt
12+7=19
19-35=-16

With `rechecks=2` the solution may go through its lines again, up to twice and each time by one chance in two, as one
who is not sure: answers then differ in length for no good reason.
"""

from __future__ import annotations

import random

from dapo.data.distinct_problems import distinct_problems
from dapo.data.rows import Row
from dapo.data.task_query import TaskQuery

_MOST_DIGITS = 8
_MOST_TERMS = 50
_MOST_RECHECKS = 9


def chain_sum_rows(query: TaskQuery) -> list[Row]:
    """Distinct chains of `fewest` (as many as terms) to `terms` (4) numbers from 1 to 10**digits - 1 (2 digits by
    default), each added or subtracted.

    Columns beside prompt and answer: solution, terms (subtracted ones below 0).
    """
    query.only("terms", "fewest", "digits", "rechecks")
    most = query.integer("terms", 4, least=2, most=_MOST_TERMS)
    fewest = query.integer("fewest", most, least=2, most=most)
    largest = 10 ** query.integer("digits", 2, least=1, most=_MOST_DIGITS) - 1
    rechecks = query.integer("rechecks", 0, least=0, most=_MOST_RECHECKS)

    def draw(generator: random.Random) -> tuple[int, ...]:
        first, *others = (generator.randint(1, largest) for _ in range(generator.randint(fewest, most)))
        return first, *(other * generator.choice((1, -1)) for other in others)

    problems = distinct_problems(query, draw, _chain)
    return [_row(query, index, terms, rechecks) for index, terms in enumerate(problems)]


def _chain(terms: tuple[int, ...]) -> str:
    """`12+7-35`"""
    return str(terms[0]) + "".join(f"{term:+d}" for term in terms[1:])


def _row(query: TaskQuery, index: int, terms: tuple[int, ...], rechecks: int) -> Row:
    chain, answer = _chain(terms), str(sum(terms))
    lines, total = [], terms[0]
    for term in terms[1:]:
        lines.append(f"{total}{term:+d}={total + term}")
        total += term
    doubts = random.Random(chain)
    times = 1
    while times <= rechecks and doubts.random() < 0.5:
        times += 1
    prompt = f"{chain}=\n"
    columns = {"prompt": prompt, "answer": answer, "solution": "\n".join(lines * times), "terms": list(terms)}
    return Row(index, f"{query.task} row {index + 1}", prompt, answer, columns)
