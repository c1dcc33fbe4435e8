"""Policy losses. They return one loss per token; whoever holds the whole optimizer step sums and divides, once.

The tensors are flat, `_T` for the response tokens of any number of answers back to back, so that there is
nothing to mask: a position outside the answers is simply not there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dapo.algorithms.choices import LOG_RATIO_BOUND, Aggregation, Clip, RatioSource


@dataclass(frozen=True)
class TokenLosses:
    """The loss of each token and how it came about; all (T,)."""

    loss: Tensor
    ratio: Tensor
    surrogate: Tensor
    """ratio x A."""
    clipped_surrogate: Tensor
    """clip(ratio) x A."""
    clipped_lower: Tensor
    """bool: a clip acted on a token with A < 0 (the lower bound, or the dual clip)."""
    clipped_upper: Tensor
    """bool: the upper bound acted on a token with A > 0."""


def policy_losses(log_ratio: Tensor, advantage: Tensor, clip: Clip | None) -> TokenLosses:
    """-min(r A, clip(r, 1 - eps_low, 1 + eps_high) A) per token. DAPO eq. 10 (Clip-Higher).

    log_ratio: (T,) float, log of new over old probability; bounded to +-20 before exp.
    advantage: (T,). clip None: the plain surrogate -r A.
    """
    ratio = bounded_ratio(log_ratio)
    surrogate = ratio * advantage
    if clip is None:
        nowhere = torch.zeros_like(ratio, dtype=torch.bool)
        return TokenLosses(-surrogate, ratio, surrogate, surrogate, nowhere, nowhere)
    low, high = 1.0 - clip.eps_low, 1.0 + clip.eps_high
    clipped = ratio.clamp(low, high) * advantage
    loss = -torch.minimum(surrogate, clipped)
    clipped_upper = (advantage > 0) & (ratio > high)
    clipped_lower = (advantage < 0) & (ratio < low)
    if clip.dual is not None:
        cap = clip.dual * advantage.abs()
        capped = (advantage < 0) & (loss > cap)
        loss = torch.where(capped, cap, loss)
        clipped_lower = clipped_lower | capped
    return TokenLosses(loss, ratio, surrogate, clipped, clipped_lower, clipped_upper)


def bounded_ratio(log_ratio: Tensor) -> Tensor:
    """exp of a log ratio within +-20, which float32 holds; NaN for one that is no number, so that it is noticed."""
    return log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp() + 0.0 * log_ratio


def token_log_ratio(logp: Tensor, old_logp: Tensor, source: RatioSource) -> Tensor:
    """(T,) log of new over old probability, at least in float32: half precision turns it into noise.

    `rollout`: the old policy is the one that wrote the tokens. `on_policy`: it is the present one held fixed,
    so that the value is 0 and only the gradient remains.
    """
    logp = logp.to(torch.promote_types(logp.dtype, torch.float32))
    return logp - (old_logp if source == "rollout" else logp.detach())


def sequence_log_ratio(log_ratio: Tensor, sequence: Tensor, count: int) -> Tensor:
    """Each token gets the mean log ratio of its whole answer: GSPO's s_i (arXiv 2507.18071, eq. 7).

    log_ratio: (T,). sequence: (T,) int64, the answer that each token belongs to, in 0..count-1.
    """
    length = torch.zeros(count, dtype=log_ratio.dtype, device=log_ratio.device)
    total = length.index_add(0, sequence, log_ratio)
    length = length.index_add(0, sequence, torch.ones_like(log_ratio))
    return (total / length.clamp(min=1))[sequence]


def token_weight(length: int, aggregation: Aggregation, horizon: int) -> float:
    """What one token of an answer of `length` tokens weighs in the sum over the optimizer step."""
    if aggregation == "seq-mean-token-mean":
        return 1.0 / length
    return 1.0 / horizon if aggregation == "seq-mean-token-sum-norm" else 1.0


def step_size(lengths: list[int], aggregation: Aggregation) -> int:
    """What the sum over the optimizer step is divided by, once: its response tokens, or its answers.

    lengths: response tokens of every answer of the step, over all passes and ranks. Empty answers do not count.
    """
    return sum(lengths) if aggregation == "token-mean" else sum(length > 0 for length in lengths)
