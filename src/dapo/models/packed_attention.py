"""Attention over packed sequences, where the answers to a prompt share one copy of it.

Tokens of many sequences lie back to back in one row, so that the model's linear layers see no padding and a
prompt is computed once for all its answers. What a token may look at is then a matter of attention alone:
its own sequence up to itself, and its prompt.

The model is the unchanged Hugging Face module; its attention layers call `packed_attention` through the
attention interface of `transformers`, with the `PackedAttention` of this pass as the keyword `packing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dapo.errors import ModelError

ATTENTION_NAME = "dapo_packed"

TILE_TOKENS = 256
"""Queries per tile. Small enough that little is computed that the mask then hides, large enough to be few."""


class PackedAttention(Protocol):
    """What a pass tells each attention layer: where keys and values come from, and who sees whom."""

    longest: int
    """Most tokens that any query looks back over, itself included."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """query: (1, H, T, D); key, value: (1, K, T, D) with H a multiple of K. Returns (1, H, T, D)."""


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    packing: PackedAttention,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The attention function that the model's layers call. Returns (1, T, H, D) and no weights."""
    if softcap is not None or s_aux is not None:
        raise ModelError("the model's attention uses score capping or sinks, which packed attention does not compute")
    if sliding_window is not None and packing.longest > sliding_window:
        raise ModelError(
            f"a sequence of {packing.longest} tokens is longer than the model's sliding window of {sliding_window}",
            fix="lower max_prompt_tokens and max_new_tokens so that their sum fits the window",
        )
    layer: int = module.layer_idx  # type: ignore[assignment]
    return packing.attend(layer, query, key, value, scaling).transpose(1, 2), None


def grouped_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Attention in which each key head serves H / K query heads without being copied for them.

    query: (B, H, Q, D), key and value: (B, K, N, D), mask: (B or 1, Q, N), added to the scores; None: all see all.
    Returns (B, H, Q, D). The query heads of one key head are laid out as further queries of that head.
    """
    batch, heads, queries, width = query.shape
    shared = heads // key.shape[1]
    folded = query.reshape(batch, key.shape[1], shared * queries, width)
    if mask is not None:
        mask = mask[:, None, :, :] if shared == 1 else mask.repeat(1, shared, 1)[:, None, :, :]
    out = F.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scale)
    return out.reshape(batch, heads, queries, width)


@dataclass(frozen=True)
class Family:
    """A prompt and the answers that share it, as lengths in tokens."""

    prompt: int
    answers: Sequence[int] = ()


@dataclass(frozen=True)
class _Tile:
    """A run of queries, and the runs of keys that any of them may look at."""

    queries: slice
    keys: tuple[slice, ...]


class FamilyAttention:
    """Attention for families packed as prompt, answer, answer, ..., prompt, answer, ...

    A token sees its prompt, and its own answer up to itself.
    """

    def __init__(self, families: Sequence[Family], dtype: torch.dtype, device: torch.device | str) -> None:
        self.longest = max(family.prompt + max(family.answers, default=0) for family in families)
        family_T, answer_T, position_T = _labels(families)
        self._masked_tiles = [
            (tile, _tile_mask(tile, family_T, answer_T, position_T, dtype).to(device)) for tile in _tiles(families)
        ]
        self.position_T = position_T.to(device)
        """(T,) int64: the position of each token in its own sequence."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        outputs = [
            grouped_attention(
                query[:, :, tile.queries], _pick(key, tile.keys), _pick(value, tile.keys), mask[None], scale
            )
            for tile, mask in self._masked_tiles
        ]
        return torch.cat(outputs, dim=2)


def _pick(states: Tensor, runs: tuple[slice, ...]) -> Tensor:
    parts = [states[:, :, run] for run in runs]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _labels(families: Sequence[Family]) -> tuple[Tensor, Tensor, Tensor]:
    """For each packed token: its family, its answer (0 for the prompt), its position in the sequence."""
    family, answer, position = [], [], []
    for number, group in enumerate(families):
        for unit, (start, length) in enumerate([(0, group.prompt), *((group.prompt, n) for n in group.answers)]):
            family.append(torch.full((length,), number))
            answer.append(torch.full((length,), unit))
            position.append(torch.arange(start, start + length))
    return torch.cat(family), torch.cat(answer), torch.cat(position)


def _tiles(families: Sequence[Family]) -> list[_Tile]:
    """Cut the packed tokens into runs of at most TILE_TOKENS; short sequences share a tile, long ones are split.

    A tile's keys are its own tokens, the beginning of the sequence in whose middle it starts, and, where it
    starts among the answers of a family, that family's prompt.
    """
    units: list[tuple[slice, slice]] = []  # each sequence's own run, and its prompt's run
    start = 0
    for family in families:
        prompt = slice(start, start + family.prompt)
        for length in (family.prompt, *family.answers):
            units.append((slice(start, start + length), prompt))
            start += length
    tiles: list[_Tile] = []
    opened: tuple[int, tuple[slice, ...]] | None = None  # first query of the tile being filled, its earlier keys
    for own, prompt in units:
        for begin in range(own.start, own.stop, TILE_TOKENS):
            end = min(begin + TILE_TOKENS, own.stop)
            if opened is not None and end - opened[0] > TILE_TOKENS:
                tiles.append(_close(opened, begin))
                opened = None
            if opened is None:
                earlier = (slice(own.start, begin),) if begin > own.start else ()
                opened = (begin, earlier if own == prompt else (prompt, *earlier))
    if opened is not None:
        tiles.append(_close(opened, start))
    return tiles


def _close(opened: tuple[int, tuple[slice, ...]], end: int) -> _Tile:
    begin, earlier = opened
    return _Tile(slice(begin, end), (*earlier, slice(begin, end)))


def _tile_mask(tile: _Tile, family_T: Tensor, answer_T: Tensor, position_T: Tensor, dtype: torch.dtype) -> Tensor:
    """(Q, N): 0 where a query sees a key, -inf where it does not."""
    keys = torch.cat([torch.arange(run.start, run.stop) for run in tile.keys])
    q_family, q_answer, q_position = (label[tile.queries, None] for label in (family_T, answer_T, position_T))
    k_family, k_answer, k_position = (label[None, keys] for label in (family_T, answer_T, position_T))
    same_line = (k_answer == 0) | (k_answer == q_answer)
    sees = (k_family == q_family) & same_line & (k_position <= q_position)
    return torch.zeros(sees.shape, dtype=dtype).masked_fill(~sees, float("-inf"))
