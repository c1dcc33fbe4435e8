"""Which groups teach: dynamic sampling's test, on raw metrics (DAPO, arXiv 2503.14476, eq. 11)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from dapo.errors import RewardError

Verdict = Literal["informative", "all_correct", "all_wrong"]

REL_TOL = 4 * 2.0**-23
ABS_TOL = 1e-9
"""Numbers closer than this are one number: four steps of float32, the rounding noise of a short calculation."""


def is_constant(values: Sequence[float]) -> bool:
    """Whether all members got the same metric, up to float noise.

    Compares the largest with the smallest: a standard deviation of equal floats need not be 0.
    Raises RewardError on NaN, which compares as neither the same nor different.
    """
    if any(math.isnan(value) for value in values):
        raise RewardError(f"a group's metric is not a number: {list(values)}")
    return math.isclose(max(values), min(values), rel_tol=REL_TOL, abs_tol=ABS_TOL)


def judge(values: Sequence[float]) -> Verdict:
    """A group that disagrees is informative; one that agrees is all correct above 0, else all wrong."""
    if not is_constant(values):
        return "informative"
    return "all_correct" if values[0] > 0 else "all_wrong"


def is_valid_dapo_group(flags: Sequence[bool]) -> bool:
    """DAPO eq. 11: some answers are right and some are wrong, 0 < correct < G."""
    return 0 < sum(bool(flag) for flag in flags) < len(flags)
