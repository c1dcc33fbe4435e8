"""Draw tokens exactly from logits, one uniform number per token.

Softmax and exponential noise over 49,152 entries cost as much as half of a small model's forward pass. Here
the exponentials are summed in blocks, the block is found on the blocks' running sum, and only that block's
entries are looked at: the inverse of the distribution function, taken in two steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dapo.models.token_logprobs import scaled_logits
from dapo.rollout.settings import Sampling

BLOCK = 128
"""Entries summed before the running sum is taken."""
SLICE_ENTRIES = 2**20
"""Logits turned into float32 at a time: 4 MiB."""


@dataclass(frozen=True)
class DrawnTokens:
    """One token per sequence."""

    tokens: Tensor
    """(B,) int64."""
    logprobs: Tensor
    """(B,) float32, under the distribution that was drawn from."""

    def to_host(self) -> list[tuple[int, float]]:
        """Token and log-probability of each sequence, in one copy, so that a GPU is waited for once. Both are exact
        in float64."""
        tokens, logprobs = torch.stack([self.tokens.double(), self.logprobs.double()]).tolist()
        return [(int(token), logprob) for token, logprob in zip(tokens, logprobs, strict=True)]


def draw_tokens(logits: Tensor, row: Tensor, uniform: Tensor, sampling: Sampling) -> DrawnTokens:
    """One token for each sequence from its row of logits.

    logits: (R, V), any float dtype. row: (B,) int64, the row that each sequence draws from; sequences may share
    one. uniform: (B,) float64 in [0, 1). Where a row of logits is not finite, neither is the log-probability.
    """
    if sampling.greedy:
        logp = scaled_logits(logits, sampling.temperature).log_softmax(-1)
        tokens = logp.argmax(-1)
        return DrawnTokens(tokens[row], logp.gather(-1, tokens[:, None])[row, 0])
    temperature = sampling.temperature
    if sampling.top_k > 0 or sampling.top_p < 1:
        logits, temperature = _cut(scaled_logits(logits, temperature), sampling), 1.0
    peak, per_block = _block_masses(logits, temperature)
    upto = per_block.cumsum(-1)
    total = upto[:, -1]
    target = uniform * total[row]
    block = torch.searchsorted(upto[row], target[:, None], right=True)[:, 0].clamp_(max=upto.shape[1] - 1)
    before = upto[row, block] - per_block[row, block]
    # Rounding can put `before` above the target, which then means the block's first entry that has mass.
    rest = (target - before).clamp_(min=0)
    entry = block[:, None] * BLOCK + torch.arange(BLOCK, device=logits.device)
    scaled = scaled_logits(logits[row[:, None], entry.clamp(max=logits.shape[-1] - 1)], temperature) - peak[row]
    inside = scaled.exp().masked_fill(entry >= logits.shape[-1], 0.0).double().cumsum(-1)
    offset = _never_past_the_last(torch.searchsorted(inside, rest[:, None], right=True)[:, 0], inside)
    tokens = (block * BLOCK + offset).clamp_(max=logits.shape[-1] - 1)
    logp = scaled.gather(-1, offset[:, None])[:, 0] - total[row].log().float()
    return DrawnTokens(tokens, logp)


def _block_masses(logits: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Each row's largest scaled logit, (R, 1) float32, and exp(scaled - largest) summed in blocks, (R, V / BLOCK)
    float64. Some rows at a time, which stay in the processor's cache from step to step."""
    rows, vocabulary = logits.shape
    missing = -vocabulary % BLOCK
    peak = torch.empty(rows, 1, dtype=torch.float32, device=logits.device)
    per_block = torch.empty(rows, (vocabulary + missing) // BLOCK, dtype=torch.float64, device=logits.device)
    size = max(1, SLICE_ENTRIES // vocabulary)
    for start in range(0, rows, size):
        part = slice(start, start + size)
        scaled = scaled_logits(logits[part], temperature)
        torch.amax(scaled, -1, keepdim=True, out=peak[part])
        mass = scaled.sub_(peak[part]).exp_()
        filled = torch.nn.functional.pad(mass, (0, missing)) if missing else mass  # even a pad by 0 copies
        per_block[part] = filled.view(len(mass), -1, BLOCK).sum(-1)
    return peak, per_block


def _never_past_the_last(offset: Tensor, inside: Tensor) -> Tensor:
    """Rounding can carry a target past its block's sum; it then means the block's last entry that has mass."""
    last = torch.searchsorted(inside, inside[:, -1:].contiguous())[:, 0]
    # A sum that is not finite is found nowhere, which is past the end.
    return torch.minimum(offset, last).clamp_(max=inside.shape[-1] - 1)


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
