"""The records that travel from the data file to the weights, in the order in which they are made.

    Prompt ──drawn──> Draw ──rollout──> Completion ──reward──> Score
    Group = one Prompt, its n Completions and their Scores; the unit of dynamic sampling
    Completion ──update──> TrainedTokens

All are frozen. A group is never split, merged or found again by its text: it carries its own id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

StopReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One row of the data set, ready for the model."""

    index: int
    """Position of the row in the data as read, from 0; error messages name it."""
    text: str
    """What the model reads: the string of the row, or its chat messages after the template."""
    tokens: tuple[int, ...]
    """Token ids of `text`, begin-of-sequence included at most once."""
    messages: tuple[Mapping[str, Any], ...] = ()
    """The chat messages of the row; empty when the row's prompt was a plain string."""
    answer: Any = None
    """The reference answer of the row, if it has one."""
    row: Mapping[str, Any] = field(default_factory=dict)
    """The whole row as it was read."""


@dataclass(frozen=True, slots=True)
class AnswerLimit:
    """Where answers are cut."""

    max_new_tokens: int
    context_length: int = 2**31
    """Most tokens of prompt and answer together."""

    def of(self, prompt: Prompt) -> int:
        """Most tokens of an answer to this prompt; 0 or below when the prompt leaves no room for one."""
        return min(self.max_new_tokens, self.context_length - len(prompt.tokens))


@dataclass(frozen=True, slots=True)
class Draw:
    """A prompt taken from the data set once more."""

    id: int
    """Number of the draw over the whole run: 0, 1, 2, ... A prompt drawn in a later epoch gets a new one; a draw
    that went back unused is made again under the same."""
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer that the model wrote."""

    tokens: tuple[int, ...]
    """Sampled token ids, the sampled end token included. These very ids are trained."""
    logprobs: tuple[float, ...]
    """float32 log-probability of each token under the distribution it was drawn from."""
    text: str
    """The tokens decoded, without special tokens. For rewards and people, never for training."""
    stop_reason: StopReason
    """`stop`: the model ended it. `length`: it was cut at the limit."""

    @property
    def truncated(self) -> bool:
        return self.stop_reason == "length"


@dataclass(frozen=True, slots=True)
class Score:
    """What the reward function said about one completion, before any shaping."""

    value: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Further numbers that the function returned, such as `acc`."""

    def metric(self, name: str) -> float:
        """`score` is the reward itself; any other name is a key that the reward function returned."""
        return self.value if name == "score" else self.metrics[name]


@dataclass(frozen=True, slots=True)
class Group:
    """The answers to one prompt, judged against each other."""

    id: int
    """The draw's id."""
    prompt: Prompt
    completions: tuple[Completion, ...]
    scores: tuple[Score, ...]
    version: int
    """Weights version that wrote the answers: the number of updates made before."""

    @property
    def rewards(self) -> list[float]:
        return [score.value for score in self.scores]

    @property
    def lengths(self) -> list[int]:
        return [len(completion.tokens) for completion in self.completions]


@dataclass(frozen=True, slots=True)
class TrainedTokens:
    """What the loss saw of one completion."""

    logprobs: tuple[float, ...]
    """float32 log-probability of each token under the weights at its optimizer step, at the sampling temperature."""
    clipped_upper: tuple[int, ...]
    """Positions, from 0, of the tokens that the upper clip bound held."""
    clipped_lower: tuple[int, ...]
    """Positions of those that the lower bound, or the dual clip, held."""
