"""Group advantages: how much better each answer did than its siblings."""

from __future__ import annotations

import torch
from torch import Tensor

from dapo.algorithms.choices import Scale
from dapo.algorithms.group_filters import ABS_TOL, REL_TOL


def compute_group_advantages(
    rewards: Tensor, eps: float = 1e-8, *, correction: int = 0, scale: Scale = "group"
) -> Tensor:
    """(r - mean) / (std + eps), mean and std over the last dimension. DAPO eq. 9.

    rewards: (G,) one group or (P, G) prompts x answers. Returns the same shape, in the rewards' float dtype.
    correction: 0 for the population deviation, 1 for the sample deviation.
    scale: what to divide by. `group`: the group's own deviation. `batch`: one deviation over all rewards.
    `none`: nothing, only the mean is taken off (Dr. GRPO, arXiv 2503.20783).

    A group whose rewards agree up to float noise scores exactly 0. Computed in float64, since a float32
    mean of equal numbers can differ from them by more than eps.
    """
    dtype = rewards.dtype if rewards.is_floating_point() else torch.float32
    exact = rewards.double()
    if exact.dim() not in (1, 2):
        raise ValueError(f"rewards must be (G,) or (P, G), prompts x answers, got shape {tuple(exact.shape)}")
    if exact.shape[-1] < 2:
        raise ValueError(f"a group needs at least 2 answers to compare, got {exact.shape[-1]}")
    centered = exact - exact.mean(-1, keepdim=True)
    if scale == "group":
        centered = centered / (exact.std(-1, correction=correction, keepdim=True) + eps)
    elif scale == "batch":
        centered = centered / (exact.std(correction=correction) + eps)
    return torch.where(_agrees(exact), 0.0, centered).to(dtype)


def _agrees(rewards: Tensor) -> Tensor:
    """(..., 1) bool: the same test as `is_constant`, on tensors; NaN agrees with nothing and so surfaces."""
    high, low = rewards.amax(-1, keepdim=True), rewards.amin(-1, keepdim=True)
    return high - low <= torch.clamp(REL_TOL * torch.maximum(high.abs(), low.abs()), min=ABS_TOL)
