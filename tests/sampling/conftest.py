"""Real records and a real prompt stream; only the writing and scoring of answers is a script."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import pytest

from dapo.data.stream import PromptStream
from dapo.records import Completion, Draw, Group, Prompt, Score
from dapo.sampling.dynamic_sampler import DynamicSampler
from dapo.sampling.settings import CollectionSettings

REWARDS = {"i": (1.0, 0.0), "r": (1.0, 1.0), "w": (0.0, 0.0)}
"""informative, all right, all wrong"""


def scored_group(
    draw: Draw, rewards: Sequence[float], version: int = 0, metrics: Sequence[Mapping[str, float]] | None = None
) -> Group:
    """A group whose answers have these rewards; the answer number k has k + 1 tokens."""
    return Group(
        id=draw.id,
        prompt=draw.prompt,
        completions=tuple(
            Completion(tuple(range(2, 3 + k)), (-1.0,) * (k + 1), f"answer {k}", "stop") for k in range(len(rewards))
        ),
        scores=tuple(Score(reward, metrics[k] if metrics is not None else {}) for k, reward in enumerate(rewards)),
        version=version,
    )


class Script:
    """Answers each draw by the letter at its id: i, r or w; the last letter goes on for ever."""

    def __init__(self, letters: str, order: Callable[[list[Draw]], list[Draw]] = list) -> None:
        self.letters = letters
        self.order = order
        """In which order the groups of a round are finished."""
        self.rounds: list[list[int]] = []
        """Ids of the draws of every round."""
        self.versions: list[int] = []
        self.finished: list[int] = []
        self.closed = 0
        self.open: list[Generator[Group | None, None, None]] = []
        """Held here, so that only closing ends them, not the garbage collector."""

    def letter(self, number: int) -> str:
        return self.letters[min(number, len(self.letters) - 1)]

    def group(self, draw: Draw, version: int) -> Group:
        return scored_group(draw, REWARDS[self.letter(draw.id)], version)

    def __call__(
        self, draws: Sequence[Draw], version: int, wait: Callable[[int], bool]
    ) -> Generator[Group | None, None, None]:
        self.rounds.append([draw.id for draw in draws])
        self.versions.append(version)
        self.open.append(self._work(draws, version))
        return self.open[-1]

    def _work(self, draws: Sequence[Draw], version: int) -> Generator[Group | None, None, None]:
        try:
            for draw in self.order(list(draws)):
                yield None
                self.finished.append(draw.id)
                yield self.group(draw, version)
        finally:
            self.closed += 1


@pytest.fixture
def script() -> type[Script]:
    return Script


@pytest.fixture
def group_of() -> Callable[..., Group]:
    return scored_group


@pytest.fixture
def stream_of() -> Callable[..., PromptStream]:
    """A stream over so many prompts, gone through once unless said otherwise."""

    def make(prompts: int, *, epochs: int | None = 1, position: int = 0) -> PromptStream:
        rows = [Prompt(index, f"prompt {index}", (2, 3)) for index in range(prompts)]
        return PromptStream(rows, epochs=epochs, seed=0, position=position)

    return make


@pytest.fixture
def sampler_of(stream_of: Callable[..., PromptStream]) -> Callable[..., DynamicSampler]:
    """A sampler over a script and so many prompts (or a stream), with any setting changed."""

    def make(
        generate: Any,
        prompts: int | PromptStream = 100,
        *,
        filtering: bool = True,
        buffered: Sequence[Any] = (),
        **settings: Any,
    ) -> DynamicSampler:
        stream = stream_of(prompts) if isinstance(prompts, int) else prompts
        return DynamicSampler(CollectionSettings(**settings), stream, generate, filtering=filtering, buffered=buffered)

    return make
