"""Keys and values of the running sequences: one slot each, all layers, growing with the longest."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dapo.models.packed_attention import Family, FamilyAttention, grouped_attention

GROWTH = 64
"""Positions are added in steps of this many, so that the cache is rarely copied."""
SLOTS_PER_BLOCK = 8
"""Slots whose attention is computed together, padded to their longest. Answers of one group lie side by side
and are equally long, so that blocks of this size waste little when lengths differ between groups."""


class KVCache:
    """Slots for `slots` sequences. keys[layer]: (slots, K, capacity, D)."""

    def __init__(self, layers: int, slots: int, heads: int, width: int, dtype: torch.dtype, device: torch.device):
        self.slots = slots
        self.capacity = 0
        self.lengths = [0] * slots
        """Tokens held by each slot."""
        empty = torch.empty(slots, heads, 0, width, dtype=dtype, device=device)
        self.keys = [empty] * layers
        self.values = [empty] * layers

    def reserve(self, length: int) -> None:
        """Make room for sequences of `length` tokens in every slot."""
        if length <= self.capacity:
            return
        wanted = max(length, self.capacity + self.capacity // 2)
        self.capacity = -(-wanted // GROWTH) * GROWTH
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


class PromptStates:
    """Keys and values of one prompt, computed once and copied into the slots of its answers."""

    def __init__(self, keys: list[Tensor], values: list[Tensor]) -> None:
        self.keys = keys
        self.values = values
        """By layer: (K, P, D)."""
        self.length = keys[0].shape[1]


class PrefillAttention(FamilyAttention):
    """Packed attention over whole prompts that keeps the keys and values it saw."""

    def __init__(self, families: Sequence[Family], dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(families, dtype, device)
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        self.keys.append(key[0])
        self.values.append(value[0])
        return super().attend(layer, query, key, value, scale)

    def states(self, run: slice) -> PromptStates:
        """The part of one prompt, which lies at `run` of the packed tokens."""
        return PromptStates([key[:, run] for key in self.keys], [value[:, run] for value in self.values])


class DecodeAttention:
    """Attention of one new token per running sequence over its slot, which the token joins first."""

    def __init__(self, cache: KVCache, slots: list[int]) -> None:
        for slot in slots:
            cache.lengths[slot] += 1
        self.longest = max(cache.lengths[slot] for slot in slots)
        cache.reserve(self.longest)
        self._cache = cache
        self._slots = torch.tensor(slots, device=cache.keys[0].device)
        self._last = torch.tensor([cache.lengths[slot] - 1 for slot in slots], device=self._slots.device)
        self._blocks = [self._block(start, slots) for start in self._starts(slots)]

    @property
    def position_T(self) -> Tensor:
        """(B,) int64: the position of each new token in its sequence."""
        return self._last

    @staticmethod
    def _starts(slots: list[int]) -> list[int]:
        return sorted({slot // SLOTS_PER_BLOCK * SLOTS_PER_BLOCK for slot in slots})

    def _block(self, start: int, slots: list[int]) -> tuple[slice, int, Tensor | None]:
        """Its slots, its longest sequence, and a mask where its sequences differ in length."""
        cache = self._cache
        stop = min(start + SLOTS_PER_BLOCK, cache.slots)
        running = set(slots)
        lengths = [cache.lengths[slot] if slot in running else 1 for slot in range(start, stop)]
        longest = max(lengths)
        if all(length == longest for length, slot in zip(lengths, range(start, stop), strict=True) if slot in running):
            return slice(start, stop), longest, None
        hidden = torch.arange(longest)[None] >= torch.tensor(lengths)[:, None]
        mask = torch.zeros(hidden.shape, dtype=cache.keys[0].dtype).masked_fill(hidden, float("-inf"))
        return slice(start, stop), longest, mask[:, None].to(self._slots.device)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        keys[self._slots, :, self._last] = key[0].transpose(0, 1)
        values[self._slots, :, self._last] = value[0].transpose(0, 1)
        by_slot = query.new_zeros(self._cache.slots, query.shape[1], 1, query.shape[3])
        by_slot[self._slots, :, 0] = query[0].transpose(0, 1)
        for slots, longest, mask in self._blocks:
            by_slot[slots] = grouped_attention(
                by_slot[slots], keys[slots, :, :longest], values[slots, :, :longest], mask, scale
            )
        return by_slot[self._slots, :, 0].transpose(0, 1)[None]
