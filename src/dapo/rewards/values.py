"""From whatever a reward function returned to a Score, or to a clear error."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from dapo.errors import RewardError
from dapo.records import Score

_ALLOWED = "return a finite number, or a dict such as {'score': 1.0, 'acc': True}"


def to_score(returned: Any, where: str) -> Score:
    """The Score that `returned` stands for; `where` names the row and the sample in errors.

    Numbers are bool, int, float and zero-dimensional NumPy or tensor scalars. A mapping needs the key `score`;
    its other numeric entries become metrics and entries of other types are left out. None, NaN, infinity, text
    and lists raise RewardError: a reward is never guessed.
    """
    if isinstance(returned, Mapping):
        return _from_mapping(returned, where)
    return Score(_finite(returned, where, "the reward"))


def to_scores(returned: Any, where: list[str]) -> list[Score]:
    """One Score for each entry of `where` from the list that a batched reward function returned."""
    values = returned.tolist() if hasattr(returned, "tolist") else returned
    if not isinstance(values, list | tuple):
        raise RewardError(
            f"{where[0]}: the batched reward returned {_shown(returned)} instead of a list",
            fix="return one number for each completion, in order",
        )
    if len(values) != len(where):
        raise RewardError(
            f"{where[0]}: the batched reward returned {len(values)} values for {len(where)} completions",
            fix="return one number for each completion, in order",
        )
    return [to_score(value, place) for value, place in zip(values, where, strict=True)]


def _from_mapping(returned: Mapping[Any, Any], where: str) -> Score:
    if "score" not in returned:
        raise RewardError(
            f"{where}: the reward returned a dict without 'score'; its keys are {sorted(map(str, returned))}",
            fix="put the reward itself under 'score'",
        )
    value = _finite(returned["score"], where, "the reward's 'score'")
    metrics = {
        str(name): _finite(extra, where, f"the reward's {name!r}")
        for name, extra in returned.items()
        if name != "score" and _number(extra) is not None
    }
    return Score(value, metrics)


def _finite(value: Any, where: str, what: str) -> float:
    number = _number(value)
    if number is None:
        if inspect.isawaitable(value):
            raise RewardError(f"{where}: the reward is asynchronous", fix="make it a plain `def`")
        raise RewardError(f"{where}: {what} is {_shown(value)}, which is not a number", fix=_ALLOWED)
    if not math.isfinite(number):
        raise RewardError(f"{where}: {what} is {number}", fix=_ALLOWED)
    return number


def _number(value: Any) -> float | None:
    """The float that `value` stands for, or None when it is no number."""
    if not isinstance(value, Real) and hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer or fraction beyond every float
        return math.inf


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"
