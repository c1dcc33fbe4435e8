"""Procedural data: `task:<name>?key=value&...` makes problems instead of reading them."""

from __future__ import annotations

from collections.abc import Callable

from dapo.data.addition import addition_rows
from dapo.data.arithmetic import arithmetic_rows
from dapo.data.chain_sum import chain_sum_rows
from dapo.data.comparison import comparison_rows
from dapo.data.countdown import countdown_rows
from dapo.data.reasoning_gym_task import reasoning_gym_rows
from dapo.data.rows import Row
from dapo.data.task_query import TaskQuery, parse_query
from dapo.data.word_problem import word_problem_rows
from dapo.errors import DataError
from dapo.wording import nearest

_PREFIX = "task:"
_GYM = "reasoning_gym/"
_BUILT_IN: dict[str, Callable[[TaskQuery], list[Row]]] = {
    "addition": addition_rows,
    "arithmetic": arithmetic_rows,
    "chain_sum": chain_sum_rows,
    "comparison": comparison_rows,
    "countdown": countdown_rows,
    "word_problem": word_problem_rows,
}


def is_task(path: str) -> bool:
    """Whether `dataset_path` names a procedural task."""
    return path.startswith(_PREFIX)


def task_rows(path: str) -> list[Row]:
    """The problems of `task:arithmetic?...`, another built-in task, or `task:reasoning_gym/<name>?...`.

    Every task takes `rows` (1000, or all if there are fewer), `split` (train, heldout or all; train by default)
    and `seed` (0). The same text gives the same rows on every machine. One problem in five is held out; which
    ones depends on the problem alone. Raises DataError for an unknown task, key or value.
    """
    name, _, query = path.removeprefix(_PREFIX).partition("?")
    make_rows = _BUILT_IN.get(name)
    if make_rows is not None:
        return make_rows(parse_query(path, query))
    if name.startswith(_GYM):
        return reasoning_gym_rows(name.removeprefix(_GYM), parse_query(path, query))
    known = [*_BUILT_IN, _GYM + "<name>"]
    guess = nearest(name, known)
    raise DataError(
        f"there is no task {name!r}; tasks: {', '.join(known)}",
        fix=f"did you mean task:{guess}?" if guess else "use one of them, such as task:arithmetic",
    )
