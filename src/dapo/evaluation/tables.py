"""The results as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dapo.evaluation.report import Measure, Report
from dapo.tracking.display import printable
from dapo.tracking.numbers import one_digit, percent, three_digits

if TYPE_CHECKING:
    from rich.table import Table

_MOST_PROBLEMS = 50
_WORDS = 40
"""Characters that a cell of text may have."""


def measures_table(report: Report) -> Table:
    """Every measure with its confidence interval."""
    table = _table()
    table.add_column(f"{len(report.problems)} problems")
    table.add_column("value", justify="right")
    table.add_column("95% interval", justify="right")
    for measure in report.measures:
        value, low, high = (_shown(measure, number) for number in (measure.value, measure.low, measure.high))
        table.add_row(measure.name, value, f"{low} to {high}")
    return table


def problems_table(report: Report) -> Table:
    """One row per problem, in the order of the data; only the first 50. What all problems begin with is left out."""
    from rich.text import Text

    table = _table()
    for name in ("row", "right", "length", "cut"):
        table.add_column(name, justify="right")
    for name in ("majority", "reference", "problem"):
        table.add_column(name)
    shared = _shared([problem.question for problem in report.problems])
    for problem in report.problems[:_MOST_PROBLEMS]:
        right = f"{sum(problem.right)}/{len(problem.right)}"
        counted = (str(problem.rows[0]), right, one_digit(problem.mean_length), str(problem.truncated))
        texts = (problem.majority or "-", str(problem.reference), problem.question[shared:])
        table.add_row(*counted, *(Text(_line(text)) for text in texts))
    return table


def beyond_table(report: Report) -> str | None:
    """What the table of problems leaves out, in words."""
    left_out = len(report.problems) - _MOST_PROBLEMS
    return f"and {left_out} more, all in results.json" if left_out > 0 else None


def _table() -> Table:
    from rich.table import Table

    return Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")


def _shared(texts: Sequence[str]) -> int:
    """How many characters all of the texts begin with; 0 for a single one."""
    first, last = min(texts), max(texts)  # what these two share, all in between share too
    differ = (at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return next(differ, 0 if first == last else len(first))


def _line(text: str) -> str:
    """The beginning of a text on one line."""
    words = " ".join(printable(text[: 4 * _WORDS]).split())
    return words if len(words) <= _WORDS else f"{words[:_WORDS]}..."


def _shown(measure: Measure, number: float) -> str:
    if measure.name == "length":
        return one_digit(number)
    return percent(number) if measure.name == "truncated" else three_digits(number)
