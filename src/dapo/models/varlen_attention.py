"""Attention for families on a GPU: one variable-length flash kernel for all sequences, without a mask."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from dapo.models.packed_attention import Family, FamilyAttention, PackedAttention

_CAUSAL = (-1, 0)
"""Window of a query: everything before it, nothing after. Where a sequence has more keys than queries, its queries
are its last tokens."""


def family_attention(
    families: Sequence[Family], dtype: torch.dtype, device: torch.device, head_width: int
) -> PackedAttention:
    """What computes families fastest here: the flash kernel where there is one, otherwise tiles with masks."""
    if device.type == "cuda" and flash_computes(dtype, head_width, torch.cuda.get_device_capability(device)):
        return VarlenAttention(families, device)
    return FamilyAttention(families, dtype, device)


def flash_computes(dtype: torch.dtype, head_width: int, capability: tuple[int, int]) -> bool:
    """Whether the flash kernel was written for this: half precision, heads of a multiple of 8 up to 256, Ampere on."""
    half = dtype in (torch.bfloat16, torch.float16)
    return half and head_width % 8 == 0 and head_width <= 256 and capability >= (8, 0)


class VarlenAttention:
    """Attention for families packed as prompt, answer, answer, ..., prompt, answer, ...

    An answer's tokens are the last queries of a sequence whose keys are its prompt's and its own. A prompt's keys and
    values are computed once; only their copies stand before each answer.
    """

    def __init__(self, families: Sequence[Family], device: torch.device | str) -> None:
        queries: list[int] = []  # of each sequence
        places: list[Tensor] = []  # of each sequence's keys among the packed tokens
        positions: list[Tensor] = []
        start = 0
        for family in families:
            prompt = torch.arange(start, start + family.prompt)
            queries.append(family.prompt)
            places.append(prompt)
            positions.append(torch.arange(family.prompt))
            start += family.prompt
            for length in filter(None, family.answers):
                queries.append(length)
                places.append(torch.cat([prompt, torch.arange(start, start + length)]))
                positions.append(torch.arange(family.prompt, family.prompt + length))
                start += length
        keys = [len(place) for place in places]
        self.longest = max(keys)
        self.position_T = torch.cat(positions).to(device)
        """(T,) int64: the position of each token in its own sequence."""
        self._key_place = torch.cat(places).to(device)
        self._query_ends = torch.tensor([0, *accumulate(queries)], dtype=torch.int32, device=device)
        self._key_ends = torch.tensor([0, *accumulate(keys)], dtype=torch.int32, device=device)
        self._most_queries = max(queries)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        key_TKD, value_TKD = (states[0].transpose(0, 1)[self._key_place] for states in (key, value))
        out_THD = varlen_attn(
            query[0].transpose(0, 1),
            key_TKD,
            value_TKD,
            self._query_ends,
            self._key_ends,
            self._most_queries,
            self.longest,
            scale=scale,
            window_size=_CAUSAL,
            enable_gqa=True,
        )
        assert isinstance(out_THD, Tensor)  # a pair only where the log-sum-exp is asked for
        return out_THD.transpose(0, 1)[None]
