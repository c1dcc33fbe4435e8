"""Which sequence runs where: waiting sequences take free slots at once, finished ones leave them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dapo.records import Draw, StopReason


@dataclass(eq=False)
class RunningSequence:
    """One answer while it is written."""

    draw: Draw
    sample: int
    """Which of the prompt's answers: 0..n-1."""
    limit: int
    """Most tokens it may have."""
    uniforms: np.random.Generator
    """Its own numbers, one per token, from (seed, draw id, sample) alone."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop_reason: StopReason | None = None


class Scheduler:
    """First come, first served. The running sequences always fill the first slots: their place in `running`."""

    def __init__(self, sequences: Sequence[RunningSequence], slots: int) -> None:
        self._waiting = deque(sequences)
        self._slots = slots
        self.running: list[RunningSequence] = []

    @property
    def unfinished(self) -> bool:
        return bool(self._waiting or self.running)

    @property
    def next_waiting(self) -> RunningSequence | None:
        return self._waiting[0] if self._waiting else None

    def admit(self) -> list[RunningSequence]:
        """Give every free slot to a waiting sequence; returns those that start now, the last in `running`."""
        started = [self._waiting.popleft() for _ in range(min(self._slots - len(self.running), len(self._waiting)))]
        self.running += started
        return started

    def release_finished(self, move: Callable[[int, int], None]) -> list[RunningSequence]:
        """Take out the sequences that have a stop reason; the last ones move into their places.

        move: called with the old and the new slot of each sequence that moves.
        """
        finished = []
        for slot in reversed(range(len(self.running))):
            if self.running[slot].stop_reason:
                finished.append(self.running[slot])
                last = self.running.pop()
                if slot < len(self.running):
                    self.running[slot] = last
                    move(len(self.running), slot)
        return finished


def sequence_uniforms(seed: int, draw_id: int, sample: int) -> np.random.Generator:
    """The random numbers of one answer: a counter-based stream that depends on these three numbers alone."""
    return np.random.Generator(np.random.Philox(key=[seed % 2**64, draw_id % 2**64], counter=[0, 0, 0, sample]))
