"""Draw tokens exactly from logits, one uniform number per token.

Softmax and exponential noise over 49,152 entries cost as much as half of a small model's forward pass. Here
the exponentials are summed in blocks, the block is found on the blocks' running sum, and only that block's
entries are looked at: the inverse of the distribution function, taken in two steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dapo.rollout.settings import Sampling

BLOCK = 128


@dataclass(frozen=True)
class DrawnTokens:
    """One token per sequence."""

    tokens: Tensor
    """(B,) int64."""
    logprobs: Tensor
    """(B,) float32, under the distribution that was drawn from."""


def draw_tokens(logits: Tensor, row: Tensor, uniform: Tensor, sampling: Sampling) -> DrawnTokens:
    """One token for each sequence from its row of logits.

    logits: (R, V), any float dtype. row: (B,) int64, the row that each sequence draws from; sequences may share
    one. uniform: (B,) float64 in [0, 1). Where a row of logits is not finite, neither is the log-probability.
    """
    scaled = logits.float()
    if sampling.temperature != 1.0:
        scaled = scaled / sampling.temperature
    if sampling.greedy:
        logp = scaled.log_softmax(-1)
        tokens = logp.argmax(-1)
        return DrawnTokens(tokens[row], logp.gather(-1, tokens[:, None])[row, 0])
    scaled = _cut(scaled, sampling)
    peak = scaled.amax(-1, keepdim=True)
    mass = _in_blocks((scaled - peak).exp_())
    per_block = mass.sum(-1).double()
    upto = per_block.cumsum(-1)
    total = upto[:, -1]
    target = uniform * total[row]
    block = torch.searchsorted(upto[row], target[:, None], right=True)[:, 0].clamp_(max=upto.shape[1] - 1)
    before = upto[row, block] - per_block[row, block]
    # Rounding can put `before` above the target, which then means the block's first entry that has mass.
    rest = (target - before).clamp_(min=0)
    inside = mass[row, block].double().cumsum(-1)
    offset = torch.searchsorted(inside, rest[:, None], right=True)[:, 0]
    tokens = _never_past_the_last(block * BLOCK + offset, block, inside).clamp_(max=scaled.shape[-1] - 1)
    logp = scaled[row, tokens] - peak[row, 0] - total[row].log().float()
    return DrawnTokens(tokens, logp)


def _in_blocks(mass: Tensor) -> Tensor:
    """(R, V) -> (R, V / BLOCK, BLOCK), filled up with entries of no mass."""
    missing = -mass.shape[-1] % BLOCK
    return torch.nn.functional.pad(mass, (0, missing)).view(len(mass), -1, BLOCK)


def _never_past_the_last(tokens: Tensor, block: Tensor, inside: Tensor) -> Tensor:
    """Rounding can carry a target past its block's sum; it then means the block's last entry that has mass."""
    last = torch.searchsorted(inside, inside[:, -1:].contiguous())[:, 0]
    return torch.minimum(tokens, block * BLOCK + last)


def _cut(scaled: Tensor, sampling: Sampling) -> Tensor:
    """Leave only the tokens that top_k and top_p allow; the others get no mass."""
    if 0 < sampling.top_k < scaled.shape[-1]:
        kth = scaled.topk(sampling.top_k, dim=-1).values[:, -1:]
        scaled = scaled.masked_fill(scaled < kth, float("-inf"))
    if sampling.top_p < 1:
        ordered, index = scaled.sort(-1, descending=True)
        probability = ordered.softmax(-1)
        beyond = probability.cumsum(-1) - probability >= sampling.top_p
        scaled = scaled.masked_fill(beyond.scatter(-1, index, beyond), float("-inf"))
    return scaled
