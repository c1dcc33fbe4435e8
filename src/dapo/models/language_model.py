"""A causal language model as the rest of the package sees it: hidden states, a head, and its end ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dapo.models.packed_attention import Family, PackedAttention
from dapo.models.varlen_attention import family_attention

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class ExactLength:
    """Up to how many tokens, prompt and answer together, a sequence is computed as the model alone would."""

    tokens: int
    reason: str
    """What ends there."""


class LanguageModel:
    """The Hugging Face module, run packed. Engine and trainer hold the same one, hence the same parameters."""

    def __init__(
        self, module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, generation_config: bytes | None = None
    ) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self.generation_config = generation_config
        """The file generation_config.json as it came with the model; None where none did."""
        self.stop_ids = _stop_ids(module, tokenizer)
        """Every id that ends an answer, from the tokenizer, the model's and the generation config."""
        self.exact = ExactLength(self.context_length, "its context")
        """How long sequences may be for the packed way to compute what the model does; see checks.py."""

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

    @property
    def head_width(self) -> int:
        """Numbers in one attention head's key."""
        config = self.module.config.get_text_config()
        return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

    def attention(self, families: Sequence[Family]) -> PackedAttention:
        """For a pass over these families, by what is fastest on this device."""
        return family_attention(families, self.dtype, self.device, self.head_width)

    def hidden(self, tokens: Tensor, positions: Tensor, packing: PackedAttention) -> Tensor:
        """Last hidden states of packed tokens. tokens, positions: (T,) int64. Returns (T, W)."""
        backbone: nn.Module = self.module.base_model
        out = backbone(input_ids=tokens[None], position_ids=positions[None], use_cache=False, packing=packing)
        return out.last_hidden_state[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """(T, W) -> (T, V), in the model's dtype."""
        return self.module.get_output_embeddings()(hidden)


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
