"""Keys and values of the running sequences: one slot each, all layers, growing with the longest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dapo.models.packed_attention import PackedAttention, grouped_attention

GROWTH = 64
"""Positions are added in steps of this many, so that the cache is rarely copied."""
CALL_COST = 400
"""What one more attention call costs, in keys that could be read in the same time (measured on two CPU cores)."""
GPU_CALL_COST = 100_000
"""The same on a GPU, which reads some 3 TB/s but takes about 10 microseconds to start a call (reckoned)."""


@dataclass(frozen=True)
class CacheShape:
    """What a model keeps of each token."""

    layers: int
    heads: int
    """Key heads."""
    width: int
    """Of a head."""

    def bytes_per_token(self, dtype: torch.dtype) -> int:
        return 2 * self.layers * self.heads * self.width * dtype.itemsize


class KVCache:
    """Slots for `slots` sequences. keys[layer]: (slots, K, capacity, D)."""

    def __init__(self, shape: CacheShape, slots: int, longest: int, dtype: torch.dtype, device: torch.device) -> None:
        """longest: most tokens that any of the sequences can reach."""
        self.capacity = 0
        self.longest = longest
        """Most tokens that a sequence may come to."""
        self.lengths = [0] * slots
        """Tokens held by each slot."""
        empty = torch.empty(slots, shape.heads, 0, shape.width, dtype=dtype, device=device)
        self.keys = [empty] * shape.layers
        self.values = [empty] * shape.layers

    def reserve(self, length: int) -> None:
        """Make room for sequences of `length` tokens in every slot."""
        if length <= self.capacity:
            return
        wanted = max(length, self.capacity + self.capacity // 2)
        self.capacity = min(-(-wanted // GROWTH) * GROWTH, self.longest)
        for store in (self.keys, self.values):
            for layer, old in enumerate(store):
                grown = old.new_zeros(*old.shape[:2], self.capacity, old.shape[3])
                grown[:, :, : old.shape[2]] = old
                store[layer] = grown

    def fill(self, slot: int, prompt: PromptStates) -> None:
        """Put a prompt's keys and values at the beginning of a slot."""
        self.reserve(prompt.length + 1)
        for layer in range(len(self.keys)):
            self.keys[layer][slot, :, : prompt.length] = prompt.keys[layer]
            self.values[layer][slot, :, : prompt.length] = prompt.values[layer]
        self.lengths[slot] = prompt.length

    def move(self, source: int, target: int) -> None:
        """Put the sequence of one slot into another."""
        length = self.lengths[source]
        for store in (self.keys, self.values):
            for states in store:
                states[target, :, :length] = states[source, :, :length]
        self.lengths[target] = length


class PromptStates:
    """Keys and values of one prompt, computed once and copied into the slots of its answers."""

    def __init__(self, keys: list[Tensor], values: list[Tensor]) -> None:
        self.keys = keys
        self.values = values
        """By layer: (K, P, D)."""
        self.length = keys[0].shape[1]


class PrefillAttention:
    """Packed attention over whole prompts that keeps the keys and values it saw."""

    def __init__(self, attention: PackedAttention) -> None:
        """attention: over the prompts, without answers."""
        self._attention = attention
        self.longest = self._attention.longest
        self.position_T = self._attention.position_T
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        self.keys.append(key[0])
        self.values.append(value[0])
        return self._attention.attend(layer, query, key, value, scale)

    def states(self, run: slice) -> PromptStates:
        """The part of one prompt, which lies at `run` of the packed tokens."""
        return PromptStates([key[:, run] for key in self.keys], [value[:, run] for value in self.values])


class DecodeAttention:
    """Attention of one new token for each of the first slots over its sequence, which the token joins first."""

    def __init__(self, cache: KVCache, running: int) -> None:
        for slot in range(running):
            cache.lengths[slot] += 1
        lengths = cache.lengths[:running]
        self.longest = max(lengths)
        cache.reserve(self.longest)
        device = cache.keys[0].device
        self._cache = cache
        self.position_T = torch.tensor(lengths, device=device) - 1
        """(B,) int64: the position of each new token in its sequence."""
        slots, heads, capacity, _ = cache.keys[0].shape
        place_SK = torch.arange(slots * heads, device=device).view(slots, heads) * capacity
        self._place = (place_SK[:running].T + self.position_T).flatten()
        """(K x B,) int64: where each head's new state goes, counted in states from the beginning of the cache."""
        self._blocks = [
            (slice(start, stop), max(lengths[start:stop]), _padding_mask(lengths[start:stop], cache.keys[0]))
            for start, stop in blocks_of(lengths, CALL_COST if device.type == "cpu" else GPU_CALL_COST)
        ]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        keys.view(-1, keys.shape[3]).index_copy_(0, self._place, key[0].flatten(0, 1))
        values.view(-1, values.shape[3]).index_copy_(0, self._place, value[0].flatten(0, 1))
        by_slot = query.transpose(0, 2)  # (B, H, 1, D)
        outputs = [
            grouped_attention(by_slot[slots], keys[slots, :, :longest], values[slots, :, :longest], mask, scale)
            for slots, longest, mask in self._blocks
        ]
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs)).transpose(0, 2)


def blocks_of(lengths: Sequence[int], call_cost: int) -> list[tuple[int, int]]:
    """Runs of neighbouring slots whose attention is one call, padded to their longest, as [start, stop).

    call_cost: what one more call costs, in keys. Neighbours join while the keys read for nothing cost less than that.
    Answers of one group start side by side and stay equally long, so that this wastes little even where lengths
    differ widely.
    """
    blocks: list[tuple[int, int]] = []
    start, longest = 0, lengths[0]  # of the block that is being filled
    for slot, length in enumerate(lengths):
        together = max(longest, length)
        if (slot + 1 - start) * together > (slot - start) * longest + length + call_cost:
            blocks.append((start, slot))
            start, together = slot, length
        longest = together
    return [*blocks, (start, len(lengths))]


def _padding_mask(lengths: Sequence[int], like: Tensor) -> Tensor | None:
    """(slots, 1, longest): -inf beyond each sequence; None where all are equally long."""
    longest = max(lengths)
    if min(lengths) == longest:
        return None
    beyond = torch.arange(longest)[None] >= torch.tensor(lengths)[:, None]
    return torch.zeros(beyond.shape, dtype=like.dtype).masked_fill(beyond, float("-inf"))[:, None].to(like.device)
