"""Which groups teach."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dapo.algorithms.group_filters import is_constant, is_valid_dapo_group, judge
from dapo.errors import RewardError


@pytest.mark.parametrize(
    ("values", "constant"),
    [
        ([0.1, 0.1, 0.1], True),  # whose float standard deviation is 1.4e-17, not 0
        ([0.1 + 0.2, 0.3], True),  # 0.30000000000000004
        ([1.0, 1.00001], False),
        ([0.0, 0.0], True),
        ([0.0, 1e-12], True),
        ([0.0, 1e-6], False),
        ([10.0, 10.00001], False),
        ([1e6, 1e6 + 1], False),
        ([1.0, 1.0 + 2**-22], True),  # two steps of float32
        ([-1.0, 1.0], False),
        ([1e6, 1e6 + 0.1], True),  # one part in ten million: float32 noise
        ([1e6, 1e6 + 10], False),
        ([0.0, 0.0, 0.0, 1.0], False),  # the last member counts too
    ],
)
def test_a_group_is_constant_up_to_float_noise(values: list[float], constant: bool) -> None:
    assert is_constant(values) is constant


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([1.0, 1.0], "all_correct"),
        ([0.0, 0.0], "all_wrong"),
        ([-1.0, -1.0], "all_wrong"),
        ([1.0, 0.0], "informative"),
        ([0.0, 1.0], "informative"),
        ([0.5, 0.5], "all_correct"),
    ],
)
def test_verdict_of_a_group(values: list[float], verdict: str) -> None:
    assert judge(values) == verdict


def test_a_nan_metric_is_an_error_not_a_verdict_b47() -> None:
    """B47: with NaN, `std > 0` would drop the group and `std == 0` keep it."""
    with pytest.raises(RewardError, match="not a number"):
        judge([1.0, math.nan, 0.0])


@pytest.mark.parametrize(
    ("flags", "valid"),
    [([True, False], True), ([True, True], False), ([False, False], False), ([True] * 15 + [False], True), ([], False)],
)
def test_some_right_and_some_wrong_makes_a_dapo_group(flags: list[bool], valid: bool) -> None:
    """Eq. 11: 0 < correct < G."""
    assert is_valid_dapo_group(flags) is valid


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_flags_may_be_numbers_arrays_or_tensors(kind: Callable[[list[int]], Any]) -> None:
    assert is_valid_dapo_group(kind([1, 0]))
    assert not is_valid_dapo_group(kind([1, 1]))
