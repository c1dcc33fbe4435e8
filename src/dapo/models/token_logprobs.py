"""Log-probabilities and entropy over the vocabulary, a block of tokens at a time.

For 4096 tokens and 150,000 entries one float32 copy of the logits is 2.3 GiB, and a plain cross-entropy holds
several. Here one block in the model's own dtype exists at a time, and one cache-sized slice of it in float32. The
backward pass computes a block's logits again, but for a fixed number of bytes that are kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

BLOCK_ENTRIES = 2**25
"""Logits computed in one matrix product: 64 MiB in bfloat16. The head's gradient is added up once per block."""
SLICE_ENTRIES = 2**20
"""Logits turned into float32 at a time: 4 MiB, which stay in the processor's cache from step to step."""
KEPT_BYTES = 2**27
"""Logits kept from the forward for the backward pass; what goes beyond is computed again."""


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
        kept: list[Tensor] = []
        room = KEPT_BYTES if any(ctx.needs_input_grad[:2]) else 0
        for block in _runs(0, len(targets), len(head), BLOCK_ENTRIES):
            block_logits = hidden[block] @ head.T
            for part in _runs(block.start, block.stop, len(head), SLICE_ENTRIES):
                logits = _scaled(block_logits, part, block, temperature)
                peak = logits.amax(-1, keepdim=True)
                logits -= peak
                mass = logits.exp()
                total = mass.sum(-1)
                log_total = total.log()
                normalizer[part] = log_total + peak[:, 0]
                logp[part] = logits.gather(-1, targets[part, None])[:, 0] - log_total
                entropy[part] = log_total - mass.mul_(logits).sum(-1) / total
            room -= block_logits.nbytes
            if room >= 0:
                kept.append(block_logits)
        ctx.save_for_backward(hidden, head, targets, normalizer)
        ctx.kept, ctx.temperature = kept, temperature
        ctx.mark_non_differentiable(entropy)
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        hidden, head, targets, normalizer = ctx.saved_tensors
        scaled = grads[0] / ctx.temperature
        d_hidden = torch.empty_like(hidden)
        d_head = torch.zeros_like(head, dtype=torch.float32)
        for number, block in enumerate(_runs(0, len(targets), len(head), BLOCK_ENTRIES)):
            # The block's logits turn into their own gradient in place.
            gradient = ctx.kept[number] if number < len(ctx.kept) else hidden[block] @ head.T
            for part in _runs(block.start, block.stop, len(head), SLICE_ENTRIES):
                logits = _scaled(gradient, part, block, ctx.temperature)
                d_logits = logits.sub_(normalizer[part, None]).exp_().mul_(-scaled[part, None])
                d_logits.scatter_add_(-1, targets[part, None], scaled[part, None])
                gradient[part.start - block.start : part.stop - block.start] = d_logits
            d_hidden[block] = gradient @ head
            d_head += gradient.T @ hidden[block]
        ctx.kept = []
        return d_hidden, d_head.to(head.dtype), None, None


def _scaled(block_logits: Tensor, part: slice, block: slice, temperature: float) -> Tensor:
    """A slice of a block's logits over the temperature; a fresh float32 tensor."""
    rows = block_logits[part.start - block.start : part.stop - block.start]
    return torch.div(rows, temperature) if rows.dtype == torch.float32 else rows.float().div_(temperature)


def _runs(start: int, stop: int, vocabulary: int, entries: int) -> list[slice]:
    """Cut a run of tokens so that no part has more than `entries` logits, nor less than one token."""
    size = max(1, entries // vocabulary)
    return [slice(begin, min(begin + size, stop)) for begin in range(start, stop, size)]
