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
from itertools import pairwise
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dapo.errors import ModelError

PLAIN_DECODER = "use a plain decoder such as Llama, Qwen, Mistral or SmolLM"
"""What to do about a model that cannot be run packed."""
ATTENTION_NAME = "dapo_packed"

TILE_TOKENS = 128
"""Most queries of a tile. Small enough that little is computed that the mask then hides, large enough to be few."""


class PackedAttention(Protocol):
    """What a pass tells each attention layer: where keys and values come from, and who sees whom."""

    longest: int
    """Most tokens that any query looks back over, itself included."""
    position_T: Tensor
    """(T,) int64: the position of each token in its own sequence."""

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
    packing: PackedAttention | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The attention function that the model's layers call. Returns (1, T, H, D) and no weights."""
    if packing is None:
        raise ModelError("the model does not hand on to its layers what packed attention needs", fix=PLAIN_DECODER)
    if softcap is not None or s_aux is not None:
        raise ModelError(
            "the model's attention uses score capping or sinks, which packed attention does not compute",
            fix=PLAIN_DECODER,
        )
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

    @property
    def size(self) -> tuple[int, int]:
        """Queries and keys."""
        return self.queries.stop - self.queries.start, sum(run.stop - run.start for run in self.keys)


@dataclass(frozen=True)
class _Bucket:
    """Tiles of about one size, computed together: padded to `queries` x `keys`."""

    numbers: tuple[int, ...]
    """Which tiles, by their place in the pass."""
    queries: int
    keys: int
    mask: Tensor
    """(tiles, queries, keys), added to the scores."""


class FamilyAttention:
    """Attention for families packed as prompt, answer, answer, ..., prompt, answer, ...

    A token sees its prompt, and its own answer up to itself. Everything that depends on lengths alone is worked
    out once here and used by all layers.
    """

    def __init__(self, families: Sequence[Family], dtype: torch.dtype, device: torch.device | str) -> None:
        self.longest = max(family.prompt + max(family.answers, default=0) for family in families)
        labels = _labels(families)
        self.position_T = labels.position.to(device)
        """(T,) int64: the position of each token in its own sequence."""
        self._tiles = _tiles(families)
        edges = {0, *(edge for tile in self._tiles for run in tile.keys for edge in (run.start, run.stop))}
        self._edges = sorted(edges)
        self._buckets = _buckets(self._tiles, labels, dtype, device)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        # Split once, so that the backward pass is one join instead of one full-size gradient per slice.
        sizes = [stop - start for start, stop in pairwise(self._edges)]
        queries, keys, values = (_Pieces(states.split(sizes, dim=2), self._edges) for states in (query, key, value))
        outputs: list[Tensor] = [query] * len(self._tiles)
        for bucket in self._buckets:
            tiles = [self._tiles[number] for number in bucket.numbers]
            out = grouped_attention(
                queries.rows([(tile.queries,) for tile in tiles], bucket.queries),
                keys.rows([tile.keys for tile in tiles], bucket.keys),
                values.rows([tile.keys for tile in tiles], bucket.keys),
                bucket.mask,
                scale,
            )
            for number, tile, row in zip(bucket.numbers, tiles, out.unbind(0), strict=True):
                outputs[number] = row[:, : tile.size[0]]
        return torch.cat(outputs, dim=1)[None]


class _Pieces:
    """States (1, H, T, D) cut at the edges of all runs."""

    def __init__(self, pieces: Sequence[Tensor], edges: Sequence[int]) -> None:
        self._pieces = pieces
        self._place = {edge: number for number, edge in enumerate(edges)}

    def rows(self, rows: Sequence[tuple[slice, ...]], width: int) -> Tensor:
        """(rows, H, width, D): the runs of each row joined, with zeros after them."""
        parts: list[Tensor] = []
        for runs in rows:
            length = 0
            for run in runs:
                parts.extend(self._pieces[self._place[run.start] : self._place[run.stop]])
                length += run.stop - run.start
            if length < width:
                parts.append(self._pieces[0].new_zeros(1, self._pieces[0].shape[1], width - length, parts[0].shape[3]))
        joined = torch.cat(parts, dim=2) if len(parts) > 1 else parts[0]
        return joined[0].unflatten(1, (len(rows), width)).transpose(0, 1)


@dataclass(frozen=True)
class _Labels:
    """For each packed token, (T,) int64."""

    family: Tensor
    answer: Tensor
    """0 for the prompt, then 1, 2, ..."""
    position: Tensor
    """In its own sequence."""


def _labels(families: Sequence[Family]) -> _Labels:
    family, answer, position = [], [], []
    for number, group in enumerate(families):
        for unit, (start, length) in enumerate([(0, group.prompt), *((group.prompt, n) for n in group.answers)]):
            family.append(torch.full((length,), number))
            answer.append(torch.full((length,), unit))
            position.append(torch.arange(start, start + length))
    return _Labels(torch.cat(family), torch.cat(answer), torch.cat(position))


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


def _buckets(tiles: Sequence[_Tile], labels: _Labels, dtype: torch.dtype, device: torch.device | str) -> list[_Bucket]:
    """Tiles whose sizes are equal once rounded up go into one attention call."""
    members: dict[tuple[int, int], list[int]] = {}
    for number, tile in enumerate(tiles):
        queries, keys = tile.size
        members.setdefault((-(-queries // 32) * 32, -(-keys // 64) * 64), []).append(number)
    buckets = []
    for numbers in members.values():
        queries, keys = (max(tiles[number].size[side] for number in numbers) for side in (0, 1))
        mask = torch.stack([_tile_mask(tiles[number], labels, queries, keys, dtype) for number in numbers])
        buckets.append(_Bucket(tuple(numbers), queries, keys, mask.to(device)))
    return buckets


def _tile_mask(tile: _Tile, labels: _Labels, queries: int, keys: int, dtype: torch.dtype) -> Tensor:
    """(queries, keys): 0 where a query sees a key, -inf where it does not. Queries of the padding see all keys, so
    that their scores are finite; nobody reads what they yield."""
    places = torch.cat([torch.arange(run.start, run.stop) for run in tile.keys])
    q_family, q_answer, q_position = (
        label[tile.queries, None] for label in (labels.family, labels.answer, labels.position)
    )
    k_family, k_answer, k_position = (label[None, places] for label in (labels.family, labels.answer, labels.position))
    same_line = (k_answer == 0) | (k_answer == q_answer)
    sees = (k_family == q_family) & same_line & (k_position <= q_position)
    mask = torch.zeros(queries, keys, dtype=dtype)
    mask[: len(sees)] = float("-inf")
    mask[: len(sees), : len(places)].masked_fill_(sees, 0.0)
    return mask
