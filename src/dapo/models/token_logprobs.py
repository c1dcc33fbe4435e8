"""Log-probabilities and entropy over the vocabulary, a block of tokens at a time.

For 4096 tokens and 150,000 entries one float32 copy of the logits is 2.3 GiB, and a plain cross-entropy holds
several. Here no more than one block exists at any moment, forward and backward: the backward pass computes a
block's logits again instead of keeping them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

BLOCK_ENTRIES = 2**24
"""Entries of one float32 block of logits: 64 MiB."""


def token_logprobs(hidden: Tensor, head: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probability of each target, and the entropy in nats of the whole distribution it came from.

    hidden: (T, W), head: (V, W), targets: (T,) int64. The logits are hidden @ head.T / temperature, with
    division and log-softmax in float32 whatever the dtype. Returns two (T,) float32; only the first carries
    gradient, to `hidden` and `head`.
    """
    logp, entropy = _TokenLogprobs.apply(hidden, head, targets, temperature)
    return logp, entropy


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        logp = torch.empty(len(targets), dtype=torch.float32, device=hidden.device)
        entropy, normalizer = torch.empty_like(logp), torch.empty_like(logp)
        for block in _blocks(len(targets), len(head)):
            logits = _logits(hidden[block], head, temperature)
            normalizer[block] = torch.logsumexp(logits, -1)
            logp[block] = logits.gather(-1, targets[block, None])[:, 0] - normalizer[block]
            probability = (logits - normalizer[block, None]).exp_()
            entropy[block] = normalizer[block] - (probability.mul_(logits)).sum(-1)
        ctx.save_for_backward(hidden, head, targets, normalizer)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropy)
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        hidden, head, targets, normalizer = ctx.saved_tensors
        scaled = grads[0] / ctx.temperature
        d_hidden = torch.empty_like(hidden)
        d_head = torch.zeros_like(head, dtype=torch.float32)
        for block in _blocks(len(targets), len(head)):
            logits = _logits(hidden[block], head, ctx.temperature)
            d_logits = (logits - normalizer[block, None]).exp_().mul_(-scaled[block, None])
            d_logits.scatter_add_(-1, targets[block, None], scaled[block, None])
            d_logits = d_logits.to(head.dtype)
            d_hidden[block] = d_logits @ head
            d_head += d_logits.T @ hidden[block]
        return d_hidden, d_head.to(head.dtype), None, None


def _logits(hidden: Tensor, head: Tensor, temperature: float) -> Tensor:
    """(block, V) float32, a fresh tensor."""
    return (hidden @ head.T).float().div_(temperature)


def _blocks(tokens: int, vocabulary: int) -> list[slice]:
    size = max(1, BLOCK_ENTRIES // vocabulary)
    return [slice(start, min(start + size, tokens)) for start in range(0, tokens, size)]
