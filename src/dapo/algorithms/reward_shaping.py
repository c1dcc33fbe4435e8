"""What is added to a raw reward before advantages: the soft overlong punishment (DAPO eq. 13)."""

from __future__ import annotations

from typing import overload

import torch
from torch import Tensor


@overload
def soft_overlong_punishment(response_length: int, max_length: int = ..., cache_length: int = ...) -> float: ...
@overload
def soft_overlong_punishment(response_length: Tensor, max_length: int = ..., cache_length: int = ...) -> Tensor: ...
def soft_overlong_punishment(
    response_length: int | Tensor, max_length: int = 4096, cache_length: int = 512
) -> float | Tensor:
    """0 up to max - cache, then falling in a line to -1 at max, and -1 beyond. DAPO eq. 13.

    response_length: tokens of the answer with its end token, without prompt or padding; an int or a tensor.
    max_length: the hard limit of an answer. cache_length: the buffer before it in which the penalty grows;
    0 switches the penalty off.
    """
    if not 0 <= cache_length <= max_length:
        raise ValueError(f"cache_length must lie in [0, max_length={max_length}], got {cache_length}")
    length = torch.as_tensor(response_length)
    if not length.is_floating_point():
        length = length.to(torch.int64)  # in bytes or short integers max_length itself would overflow
    if cache_length == 0:
        penalty = torch.zeros_like(length, dtype=torch.float32)
    else:
        penalty = ((max_length - cache_length - length) / cache_length).clamp(-1.0, 0.0)
    return penalty if isinstance(response_length, Tensor) else penalty.item() + 0.0


@overload
def compute_rule_reward(
    is_correct: bool, response_length: int, max_length: int = ..., cache_length: int = ...
) -> float: ...
@overload
def compute_rule_reward(
    is_correct: Tensor, response_length: Tensor, max_length: int = ..., cache_length: int = ...
) -> Tensor: ...
def compute_rule_reward(
    is_correct: bool | Tensor, response_length: int | Tensor, max_length: int = 4096, cache_length: int = 512
) -> float | Tensor:
    """The paper's whole reward: +1 for a right answer, -1 for a wrong one, plus the overlong punishment.

    One answer as bool and int, or many as tensors of one shape, which is returned as float.
    """
    punishment = soft_overlong_punishment(response_length, max_length, cache_length)
    if isinstance(is_correct, Tensor):
        return torch.where(is_correct.bool(), 1.0, -1.0) + punishment
    return (1.0 if is_correct else -1.0) + punishment
