"""Log-probabilities and entropy over the vocabulary, a block of tokens at a time.

For 4096 tokens and 150,000 entries one float32 copy of the logits is 2.3 GiB, and a plain cross-entropy holds
several. Here one block of tokens exists at a time, in the model's own dtype, and a cache-sized slice of it in float32.
The backward pass takes the blocks from the last to the first: the last one's logits are still there, and each earlier
one's are computed again.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

BLOCK_BYTES = 2**28
"""Most bytes of logits that exist at once (256 MiB): 2,700 tokens of a vocabulary of 49,152 in bfloat16."""
SLICE_ENTRIES = 2**20
"""Logits turned into float32 at a time: 4 MiB, which stay in the processor's cache from step to step."""


def token_logprobs(hidden: Tensor, head: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probability of each target, and the entropy in nats of the whole distribution it came from.

    hidden: (T, W), head: (V, W), targets: (T,) int64. The logits are hidden @ head.T / temperature, with
    division and log-softmax in float32 whatever the dtype. Returns two (T,) float32; only the first carries
    gradient, to `hidden` and `head`.
    """
    logp, entropy = _TokenLogprobs.apply(hidden, head, targets, temperature)
    return logp, entropy


def scaled_logits(logits: Tensor, temperature: float) -> Tensor:
    """Logits over the temperature, a fresh float32 tensor: what tokens are drawn from, and what they are scored by."""
    fresh = logits.to(torch.float32, copy=True)
    return fresh if temperature == 1 else fresh.div_(temperature)


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        logp = torch.empty(len(targets), dtype=torch.float32, device=hidden.device)
        entropy, normalizer = torch.empty_like(logp), torch.empty_like(logp)
        last: Tensor | None = None
        for block in _blocks(hidden, head):
            last = None  # before the next one is made
            last = hidden[block] @ head.T
            for part in _slices(block, head):
                logits = scaled_logits(_of_slice(last, part, block), temperature)
                peak = logits.amax(-1, keepdim=True)
                logits -= peak
                mass = logits.exp()
                total = mass.sum(-1)
                log_total = total.log()
                normalizer[part] = log_total + peak[:, 0]
                logp[part] = logits.gather(-1, targets[part, None])[:, 0] - log_total
                entropy[part] = log_total - mass.mul_(logits).sum(-1) / total
        ctx.save_for_backward(hidden, head, targets, normalizer)
        ctx.last, ctx.temperature = last if any(ctx.needs_input_grad[:2]) else None, temperature
        ctx.mark_non_differentiable(entropy)
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        hidden, head, targets, normalizer = ctx.saved_tensors
        scaled = grads[0] / ctx.temperature
        d_hidden = torch.empty_like(hidden)
        d_head: Tensor | None = None
        gradient, ctx.last = ctx.last, None
        for block in reversed(_blocks(hidden, head)):
            if gradient is None:
                gradient = hidden[block] @ head.T
            # The block's logits turn into their own gradient in place.
            for part in _slices(block, head):
                logits = scaled_logits(_of_slice(gradient, part, block), ctx.temperature)
                d_logits = logits.sub_(normalizer[part, None]).exp_().mul_(-scaled[part, None])
                d_logits.scatter_add_(-1, targets[part, None], scaled[part, None])
                _of_slice(gradient, part, block).copy_(d_logits)
            d_hidden[block] = gradient @ head
            of_block = gradient.T @ hidden[block]
            gradient = None
            d_head = of_block if d_head is None else d_head.float().add_(of_block)
        assert d_head is not None
        return d_hidden, d_head.to(head.dtype), None, None


def _of_slice(of_block: Tensor, part: slice, block: slice) -> Tensor:
    """The rows of a slice among those of its block."""
    return of_block[part.start - block.start : part.stop - block.start]


def _blocks(hidden: Tensor, head: Tensor) -> list[slice]:
    """Runs of tokens, equally long but for rounding, whose logits fit into BLOCK_BYTES; none below one token."""
    tokens, most = len(hidden), max(1, BLOCK_BYTES // (len(head) * hidden.element_size()))
    count = max(1, -(-tokens // most))
    edges = [tokens * number // count for number in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(edges)]


def _slices(block: slice, head: Tensor) -> list[slice]:
    size = max(1, SLICE_ENTRIES // len(head))
    return [slice(start, min(start + size, block.stop)) for start in range(block.start, block.stop, size)]
