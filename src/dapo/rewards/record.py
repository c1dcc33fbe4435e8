"""What a `reward_fn(record)` is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dapo.records import Completion, Prompt


@dataclass(frozen=True, slots=True)
class RewardRecord:
    """One answer with all that is known about it. Token lists cover the prompt, then the response."""

    prompt: str
    """What the model read, chat template included."""
    completion: str
    """What the model wrote, without special tokens."""
    answer: Any
    """The reference answer of the row, or None."""
    messages: tuple[Mapping[str, Any], ...]
    """The row's chat messages; empty when its prompt was a plain string."""
    tokens: tuple[int, ...]
    """Token ids of the prompt followed by those of the response."""
    logprobs: tuple[float, ...]
    """Log-probability of each token when it was drawn; 0.0 on the prompt. As long as `tokens`."""
    loss_mask: tuple[int, ...]
    """0 on the prompt, 1 on the response. As long as `tokens`."""
    source_record: Mapping[str, Any]
    """The whole row as it was read."""
    metadata: Mapping[str, int]
    """`prompt_index`: the row's position in the data. `sample_index`: which of its answers, from 0."""


def reward_record(prompt: Prompt, completion: Completion, sample_index: int) -> RewardRecord:
    """The record of answer number `sample_index` to `prompt`."""
    n_prompt, n_response = len(prompt.tokens), len(completion.tokens)
    return RewardRecord(
        prompt=prompt.text,
        completion=completion.text,
        answer=prompt.answer,
        messages=prompt.messages,
        tokens=prompt.tokens + completion.tokens,
        logprobs=(0.0,) * n_prompt + completion.logprobs,
        loss_mask=(0,) * n_prompt + (1,) * n_response,
        source_record=prompt.row,
        metadata={"prompt_index": prompt.index, "sample_index": sample_index},
    )
