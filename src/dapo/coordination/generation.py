"""Rollout and reward in one stream: answers are scored in other processes while the next ones are written."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from dapo.records import Draw, Group, Score
from dapo.rewards.pool import RewardPool
from dapo.rollout.engine import Rollout, RolloutEngine, answer_all
from dapo.rollout.settings import Sampling
from dapo.sampling.dynamic_sampler import Wait


@dataclass
class Clock:
    """Seconds spent, by part; the loop takes them out once per update."""

    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, part: str, since: float) -> None:
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - since

    def take(self) -> dict[str, float]:
        """What was added since the last call."""
        taken, self.seconds = self.seconds, {}
        return taken


class ScoredGeneration:
    """What the sampler calls to have draws answered and scored."""

    def __init__(
        self,
        engine: RolloutEngine,
        rewards: RewardPool,
        sampling: Sampling,
        seed: int,
        clock: Clock,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._rewards = rewards
        self._sampling = sampling
        self._seed = seed
        self._clock = clock
        self._progress = progress
        """Called after every step of the engine."""
        self.sequences_asked = 0
        """Answers of the present round."""
        self._finished_before = 0

    @property
    def sequences_done(self) -> int:
        """Answers of the present round that are finished."""
        return self._engine.counters.finished - self._finished_before

    def __call__(
        self, draws: Sequence[Draw], version: int, wait: Wait = lambda unscored: False
    ) -> Generator[Group | None, None, None]:
        """Groups in the order in which they were written; see `Generate` and `Wait`."""
        self.sequences_asked = len(draws) * self._sampling.n
        self._finished_before = self._engine.counters.finished
        # Groups leave in the order in which the engine finished them, not in that in which their scores came back:
        # where a collection ends, and what it drops, then does not depend on how fast a reward is.
        scoring: deque[tuple[Rollout, Future[list[Score]]]] = deque()
        rollouts = answer_all(self._engine, draws, self._sampling, self._seed)
        try:
            while True:
                started = time.perf_counter()
                try:
                    rollout = next(rollouts)
                except StopIteration:
                    break
                self._clock.add("rollout", started)
                self._progress()
                if rollout is not None:
                    scoring.append((rollout, self._rewards.submit(rollout.draw.prompt, rollout.completions)))
                while scoring and (wait(len(scoring)) or scoring[0][1].done()):
                    yield self._group(*scoring.popleft(), version)
                yield None
            while scoring:
                yield self._group(*scoring.popleft(), version)
        finally:
            rollouts.close()

    def _group(self, rollout: Rollout, scores: Future[list[Score]], version: int) -> Group:
        started = time.perf_counter()
        result = scores.result()
        self._clock.add("reward", started)
        return Group(rollout.draw.id, rollout.draw.prompt, rollout.completions, tuple(result), version)
