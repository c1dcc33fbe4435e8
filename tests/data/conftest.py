"""Real, tiny tokenizers: one id per byte, so that token counts are byte counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[..., Any]:
    """A byte-level tokenizer with <s> = 0 and </s> = 1; `around` is the post-processing template."""

    def make(*, chat_template: str | None = CHAT_TEMPLATE, around: str = "<s> $A") -> Any:
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        vocabulary = {"<s>": 0, "</s>": 1} | {letter: number for number, letter in enumerate(letters, start=2)}
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.post_processor = processors.TemplateProcessing(
            single=around, special_tokens=[("<s>", 0), ("</s>", 1)]
        )
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
        fast.chat_template = chat_template
        return fast

    return make
