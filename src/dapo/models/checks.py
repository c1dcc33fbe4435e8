"""What a model must show when it is loaded: that the packed way computes what the model's own forward pass does.

A model that does more is refused, with the reason, rather than trained wrongly in silence. Everything is tried in the
mode in which training runs: with gradients, in evaluation mode, with activation checkpointing where it is on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dapo.errors import ModelError
from dapo.models.language_model import ExactLength, LanguageModel
from dapo.models.packed_attention import PLAIN_DECODER, Family, PackedAttention

TOKENS = 8
"""Two sequences of four."""
LARGE_LOGIT = 1000.0
"""Beyond every cap on logits that models have (30 to 50), so that one shows."""
LONGEST_PROBED = 2**20
"""Positions up to which encodings are compared; a model that names no context may go on for ever."""


def check_model(model: LanguageModel) -> None:
    """Raises ModelError for a model that the packed way does not reproduce; sets `model.exact`."""
    positions = _check_attention(model)
    _check_head(model)
    limits = (
        ExactLength(model.context_length, "its context"),
        ExactLength(_window(model.module.config.get_text_config()), "its sliding window"),
        ExactLength(positions, "positions are encoded otherwise in a pass with a longer sequence"),
    )
    model.exact = min(limits, key=lambda limit: limit.tokens)


def _check_attention(model: LanguageModel) -> int:
    """Compare hidden states; returns the length up to which the position encoding depends on the position alone."""
    tokens = torch.arange(TOKENS, device=model.device) % model.module.config.get_text_config().vocab_size
    packing = CountedAttention(model.attention([Family(4), Family(4)]))
    encodings: list[_Encoding] = []
    with torch.enable_grad(), _watched(model, encodings) as without_gradient:
        packed = model.hidden(tokens, packing.position_T, packing).detach()
        again = model.hidden(tokens, packing.position_T, packing).detach()
    _refuse_other_layers(model, packing.calls // 2)
    if without_gradient:
        raise ModelError(
            f"{type(model.module).__name__} passes no gradient through {without_gradient[0]} in evaluation mode, "
            "in which it is trained",
            fix=PLAIN_DECODER,
        )
    implementation = model.module.config._attn_implementation
    with torch.no_grad():
        model.module.set_attn_implementation("eager")
        plain = model.module.base_model(input_ids=tokens.view(2, 4), use_cache=False).last_hidden_state.flatten(0, 1)
        model.module.set_attn_implementation(implementation)
        # Attention is equal only up to rounding, which bfloat16 lets grow to some percent over the layers; a wrong one
        # is off by about 1. The same pass once more differs by nothing, unless something is drawn in it.
        _refuse_gap(model, "attention", packed, plain, 1e-3 if model.dtype == torch.float32 else 0.3)
        _refuse_gap(model, "second pass", again, packed, 1e-3)
        longest = min(model.context_length, LONGEST_PROBED)
        return min((encoding.stable_length(longest) for encoding in encodings), default=longest)


@torch.no_grad()
def _check_head(model: LanguageModel) -> None:
    """Compare what enters the head with the last hidden states, and what leaves it with the plain product: for states
    that make one token's logit large."""
    head = model.head[:TOKENS]
    states = (LARGE_LOGIT * head / head.float().square().sum(-1, keepdim=True).clamp(min=1e-6).to(head.dtype))[None]
    tokens = torch.arange(len(head), device=model.device)
    packing = model.attention([Family(len(head))])
    entered: list[Tensor] = []

    def exchange(_head: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        entered.append(args[0][0])
        return (states, *args[1:])

    hook = model.module.get_output_embeddings().register_forward_pre_hook(exchange)
    try:
        own = model.module(input_ids=tokens[None], position_ids=tokens[None], use_cache=False, packing=packing).logits
    finally:
        hook.remove()
    # On the same states the two are all but equal.
    tolerance = 1e-4 if model.dtype == torch.float32 else 1e-2
    _refuse_gap(model, "head", model.hidden(tokens, tokens, packing), entered[0], tolerance)
    _refuse_gap(model, "head", states[0] @ model.head.T, own[0], tolerance)


def _refuse_gap(model: LanguageModel, where: str, ours: Tensor, own: Tensor, tolerance: float) -> None:
    name = type(model.module).__name__
    if not own.isfinite().all():
        raise ModelError(f"the results of {name} are not finite", fix="copy or save the weights again")
    gap = ((ours.float() - own.float()).norm() / own.float().norm().clamp(min=1e-6)).item()
    if not gap <= tolerance:
        raise ModelError(
            f"{name} computes something that packed attention does not: the results of its {where} differ by {gap:.1%}",
            fix=PLAIN_DECODER,
        )


def _refuse_other_layers(model: LanguageModel, calls: int) -> None:
    layers = model.module.config.get_text_config().num_hidden_layers
    if calls != layers:
        raise ModelError(
            f"{type(model.module).__name__} has {layers} layers, of which {calls} use packed attention",
            fix=PLAIN_DECODER,
        )


def _window(config: Any) -> int:
    """Most tokens that every layer of the model looks back over, as its config says."""
    kinds = getattr(config, "layer_types", None)
    windows = [
        getattr(config, name, None)
        for name, kind in (("sliding_window", "sliding_attention"), ("attention_chunk_size", "chunked_attention"))
        if kinds is None or kind in kinds
    ]
    return min((window for window in windows if window), default=LONGEST_PROBED)


@contextmanager
def _watched(model: LanguageModel, encodings: list[_Encoding]) -> Iterator[list[str]]:
    """While it is entered: collects the parts that encode positions, and yields the names of linear layers whose
    results have no gradient although their weights are trained."""
    without_gradient: list[str] = []

    def on_encoding(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if any(_are_positions(value) for value in (*args, *kwargs.values())):
            encodings.append(_Encoding(part, args, kwargs))

    def on_linear(name: str) -> Callable[..., None]:
        def look(part: nn.Module, _args: Any, output: Tensor) -> None:
            if part.weight.requires_grad and not output.requires_grad:
                without_gradient.append(name)

        return look

    parts = [(name, part) for name, part in model.module.base_model.named_modules() if not list(part.children())]
    hooks = [part.register_forward_pre_hook(on_encoding, with_kwargs=True) for _, part in parts]
    hooks += [part.register_forward_hook(on_linear(name)) for name, part in parts if type(part) is nn.Linear]
    try:
        yield without_gradient
    finally:
        for hook in hooks:
            hook.remove()


def _are_positions(value: Any) -> bool:
    """Whether this is the argument `position_ids` of the two sequences: 0 1 2 3 0 1 2 3."""
    expected = torch.arange(TOKENS)[None] % (TOKENS // 2)
    return isinstance(value, Tensor) and value.shape == expected.shape and value.tolist() == expected.tolist()


class _Encoding:
    """A part of the model that turns positions into something, as it was called."""

    def __init__(self, part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._part = part
        self._args = args
        self._kwargs = kwargs

    def stable_length(self, longest: int) -> int:
        """The largest length, at most `longest`, up to which a position's encoding is the same in every sequence.

        Dynamic NTK and LongRoPE choose their frequencies by the last position of a pass: the encodings of a prompt
        then change while its answer grows, and those of a short sequence with the length of its neighbour.
        """
        short = self._first_encodings(TOKENS)
        if self._same(short, longest):
            return longest
        low, high = TOKENS, longest  # the same up to `low`, another at `high`
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._same(short, middle) else (low, middle)
        self._first_encodings(TOKENS)
        return low

    def _same(self, short: list[Tensor], length: int) -> bool:
        now = self._first_encodings(length)
        return all(torch.equal(one, other) for one, other in zip(short, now, strict=True))

    def _first_encodings(self, length: int) -> list[Tensor]:
        """The encodings of all but the last position of a pass whose last position is that of `length` tokens."""
        positions = torch.arange(TOKENS)
        positions[-1] = length - 1

        def put(value: Any) -> Any:
            return positions[None].to(value.device) if _are_positions(value) else value

        out = self._part(*map(put, self._args), **{name: put(value) for name, value in self._kwargs.items()})
        return [each[:, :-1].clone() for each in (out if isinstance(out, tuple) else (out,))]


class CountedAttention:
    """Packed attention that knows how often it was asked: once by each layer of a plain decoder."""

    def __init__(self, attention: PackedAttention) -> None:
        self._attention = attention
        self.longest = attention.longest
        self.position_T = attention.position_T
        self.calls = 0

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        self.calls += 1
        return self._attention.attend(layer, query, key, value, scale)
