"""A causal language model as the rest of the package sees it: hidden states, a head, and its end ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dapo.errors import ModelError
from dapo.models.packed_attention import PLAIN_DECODER, Family, PackedAttention
from dapo.models.varlen_attention import family_attention

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class LanguageModel:
    """The Hugging Face module, run packed. Engine and trainer hold the same one, hence the same parameters."""

    def __init__(self, module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self.stop_ids = _stop_ids(module, tokenizer)
        """Every id that ends an answer, from the tokenizer, the model's and the generation config."""

    @property
    def device(self) -> torch.device:
        return self.module.device

    @property
    def dtype(self) -> torch.dtype:
        return self.module.dtype

    @property
    def head(self) -> Tensor:
        """(V, W): the output embedding."""
        return self.module.get_output_embeddings().weight

    @property
    def context_length(self) -> int:
        """Most tokens of one sequence, prompt and answer together."""
        return getattr(self.module.config, "max_position_embeddings", None) or 2**31

    def hidden(self, tokens: Tensor, positions: Tensor, packing: PackedAttention) -> Tensor:
        """Last hidden states of packed tokens. tokens, positions: (T,) int64. Returns (T, W)."""
        backbone: nn.Module = self.module.base_model
        out = backbone(input_ids=tokens[None], position_ids=positions[None], use_cache=False, packing=packing)
        return out.last_hidden_state[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """(T, W) -> (T, V), in the model's dtype."""
        return self.module.get_output_embeddings()(hidden)

    def check(self) -> None:
        """Run two short sequences packed and compare with the module's own plain forward pass over both.

        Raises ModelError for a model that does more than the packed way computes (caps on logits, a bias in the
        head, scaled logits) or that mixes packed sequences (a state that runs on, positions of its own), rather than
        train it wrongly in silence.
        """
        tokens = torch.arange(8, device=self.device) % self.module.config.get_text_config().vocab_size
        packing = _CountedAttention(family_attention([Family(4), Family(4)], self.dtype, self.device))
        implementation = self.module.config._attn_implementation
        with torch.no_grad():
            packed = self.hidden(tokens, packing.position_T, packing)
            self._refuse_other_layers(packing.calls)
            self.module.set_attn_implementation("eager")
            both = tokens.view(2, 4)
            plain = self.module.base_model(input_ids=both, use_cache=False).last_hidden_state.flatten(0, 1)
            logits = self.module(input_ids=both, use_cache=False).logits.flatten(0, 1)
            self.module.set_attn_implementation(implementation)
        # The head is compared on the same hidden states and so almost exactly. Attention is so only up to rounding,
        # which bfloat16 lets grow to some percent over the layers; a wrong one is off by about 1.
        self._refuse_gap("attention", packed, plain, 1e-3 if self.dtype == torch.float32 else 0.3)
        self._refuse_gap("head", plain @ self.head.T, logits, 1e-4 if self.dtype == torch.float32 else 1e-2)

    def _refuse_gap(self, where: str, ours: Tensor, own: Tensor, tolerance: float) -> None:
        if not own.isfinite().all():
            raise ModelError(
                f"the results of {type(self.module).__name__} are not finite", fix="copy or save the weights again"
            )
        gap = ((ours.float() - own.float()).norm() / own.float().norm().clamp(min=1e-6)).item()
        if not gap <= tolerance:
            raise ModelError(
                f"{type(self.module).__name__} computes something that packed attention does not: "
                f"the results of its {where} differ by {gap:.1%}",
                fix=PLAIN_DECODER,
            )

    def _refuse_other_layers(self, calls: int) -> None:
        layers = self.module.config.get_text_config().num_hidden_layers
        if calls != layers:
            raise ModelError(
                f"{type(self.module).__name__} has {layers} layers, of which {calls} use packed attention",
                fix=PLAIN_DECODER,
            )


class _CountedAttention:
    """Packed attention that knows how often it was asked: once by each layer of a plain decoder."""

    def __init__(self, attention: PackedAttention) -> None:
        self._attention = attention
        self.longest = attention.longest
        self.position_T = attention.position_T
        self.calls = 0

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        self.calls += 1
        return self._attention.attend(layer, query, key, value, scale)


def _stop_ids(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    ids: set[int] = set()
    sources: tuple[Any, ...] = (
        tokenizer.eos_token_id,
        getattr(module.config, "eos_token_id", None),
        getattr(module.generation_config, "eos_token_id", None),
    )
    for source in sources:
        if source is not None:
            ids.update(source if isinstance(source, list | tuple) else [source])
    return frozenset(ids)
