"""In which order groups leave generation."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from dapo.coordination.generation import Clock, ScoredGeneration
from dapo.records import Completion, Draw, Prompt, Score
from dapo.rollout.engine import Finished, Request, RolloutCounters
from dapo.rollout.settings import Sampling

ANSWER = Completion((5,), (-1.0,), "a", "stop")


class ListedEngine:
    """Finishes the draws in the order given."""

    def __init__(self, order: Sequence[int]) -> None:
        self.order = order
        self.counters = RolloutCounters()

    def submit(self, requests: Sequence[Request]) -> None:
        self.finished = [Finished(requests[place], ANSWER) for place in self.order]

    def step(self) -> list[Finished]:
        return [self.finished.pop(0)]

    def abort(self) -> list[Request]:
        return []


class RewardsInAnyOrder:
    """Scores the rows named as slow only when the last group is handed in."""

    def __init__(self, slow: set[int], last: int) -> None:
        self.slow, self.last = slow, last
        self.waiting: list[Future[list[Score]]] = []

    def submit(self, prompt: Prompt, completions: Sequence[Completion]) -> Future[list[Score]]:
        future: Future[list[Score]] = Future()
        self.waiting.append(future)
        if prompt.index == self.last:
            for earlier in self.waiting:
                if not earlier.done():
                    earlier.set_result([Score(1.0)])
        elif prompt.index not in self.slow:
            future.set_result([Score(1.0)])
        return future


@pytest.mark.parametrize("slow", [set(), {2}, {0, 2}])
def test_groups_leave_in_the_order_of_the_engine_however_fast_their_rewards_are(slow: set[int]) -> None:
    """Where a round stops, and what it drops, must be the same in every run: the engine finishes 2, 0, 1, 3."""
    engine: Any = ListedEngine([2, 0, 1, 3])
    rewards: Any = RewardsInAnyOrder(slow, last=3)
    generation = ScoredGeneration(engine, rewards, Sampling(1, 8), 0, Clock())
    draws = [Draw(number, Prompt(number, "", (4,))) for number in range(4)]
    assert [group.id for group in generation(draws, 0) if group is not None] == [2, 0, 1, 3]
