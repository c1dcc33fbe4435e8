"""What a rollout engine is: the contract that every engine keeps, and that one test suite checks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

from dapo.records import Completion, Draw
from dapo.rollout.settings import Sampling


@dataclass(frozen=True)
class Rollout:
    """All answers to one drawn prompt."""

    draw: Draw
    completions: tuple[Completion, ...]


@dataclass
class RolloutCounters:
    """What an engine computed since it was made; read for progress and speed, never for results."""

    prompt_tokens: int = 0
    """Prompt tokens put through the model; a prompt counts once, however many answers it has."""
    sampled_tokens: int = 0
    """Tokens drawn, those of stopped answers included."""
    finished: int = 0
    """Answers completed."""


class RolloutEngine(Protocol):
    """Draws answers to prompts.

    For every draw exactly `sampling.n` completions come back together, in any order of draws. Log-probabilities
    are float32, one per token, of the distribution sampled from. Which tokens are drawn depends only on the
    weights, `sampling`, `seed`, and the draw's id, never on what else is generated beside it. In float32; in bfloat16
    a product's rounding can depend on how many rows it has, and so, rarely, a token on its neighbours.
    """

    counters: RolloutCounters

    def rollout(self, draws: Sequence[Draw], sampling: Sampling, seed: int) -> Generator[Rollout | None, None, None]:
        """Yield each draw's answers when all are done, and None after steps that finished no group.

        Closing the iterator stops what is still being generated.
        """
