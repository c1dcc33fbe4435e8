"""A small model made from numbers: a Llama with random weights, and a tokenizer whose tokens are bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dapo.errors import ConfigError

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

BYTES = 256
"""Ids below this are the bytes themselves."""
EOS, PAD = BYTES, BYTES + 1
"""`<eos>` ends an answer; `<pad>` is for tools that need equally long sequences."""


@dataclass(frozen=True)
class NewModelSettings:
    """The shape of the model. What is not said here is as in Llama; embeddings are tied."""

    layers: int = 4
    """Decoder layers."""
    hidden_size: int = 128
    """Width of the hidden states."""
    heads: int = 4
    """Attention heads; hidden_size divided by it must be even."""
    kv_heads: int | None = None
    """Heads that keys and values have, a divisor of heads (as many as heads if not set)."""
    mlp_size: int | None = None
    """Width inside the feed-forward layers (8/3 of hidden_size, up to a multiple of 32, if not set)."""
    context: int = 512
    """Most tokens of prompt and answer together; a token is a byte."""
    seed: int = 1
    """Decides the weights."""

    def __post_init__(self) -> None:
        for name, least in (
            ("layers", 1),
            ("hidden_size", 2),
            ("heads", 1),
            ("kv_heads", 1),
            ("mlp_size", 1),
            ("context", 2),
            ("seed", 0),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name} is {value}", fix=f"use at least {least}")
        if self.hidden_size % (2 * self.heads):
            raise ConfigError(
                f"hidden_size is {self.hidden_size} but heads is {self.heads}: rotary positions need heads of "
                "an even width",
                fix=f"make hidden_size a multiple of {2 * self.heads}",
            )
        if self.heads % self.key_value_heads:
            raise ConfigError(
                f"kv_heads is {self.kv_heads} but heads is {self.heads}", fix="make kv_heads a divisor of heads"
            )

    @property
    def key_value_heads(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def feed_forward(self) -> int:
        """Width inside the feed-forward layers. Three matrices of 8/3 weigh as much as the usual two of 4."""
        return -(-8 * self.hidden_size // (3 * 32)) * 32 if self.mlp_size is None else self.mlp_size


def save_new_model(settings: NewModelSettings, folder: Path) -> int:
    """Write model and tokenizer as a Hugging Face folder; returns the number of parameters.

    Equal settings write equal bytes. The random state of the process stays as it was.
    """
    module = _llama(settings)
    module.save_pretrained(folder)
    byte_tokenizer(settings.context).save_pretrained(folder)
    return module.num_parameters()


def byte_tokenizer(context: int) -> PreTrainedTokenizerFast:
    """One token per UTF-8 byte, so that every text comes back as it was; special tokens are no text: `<eos>` written
    in a prompt is five bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE({letter: byte for byte, letter in enumerate(_letters())}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<eos>",
        pad_token="<pad>",
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
        model_max_length=context,
    )


def _letters() -> list[str]:
    """The letter that stands for each byte in `tokenizer.json`: a visible Latin-1 byte for itself, the others for
    the letters from U+0100 on. This is the alphabet of byte-level tokenizers since GPT-2."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (chr(code) for code in range(0x100, 0x200))
    return [chr(byte) if byte in visible else next(others) for byte in range(BYTES)]


def _llama(settings: NewModelSettings) -> LlamaForCausalLM:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=BYTES + 2,
        hidden_size=settings.hidden_size,
        intermediate_size=settings.feed_forward,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.key_value_heads,
        max_position_embeddings=settings.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=PAD,
        dtype="float32",
    )
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        return LlamaForCausalLM(config).float()
