"""Which sequence runs where: waiting sequences take free slots at once, finished ones leave them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
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
    slot: int = -1
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop_reason: StopReason | None = None


class Scheduler:
    """First come, first served, over a fixed number of slots."""

    def __init__(self, sequences: Sequence[RunningSequence], slots: int) -> None:
        self._waiting = deque(sequences)
        self._free = deque(range(slots))
        self.running: list[RunningSequence] = []
        """Ordered by slot."""

    @property
    def unfinished(self) -> bool:
        return bool(self._waiting or self.running)

    @property
    def next_waiting(self) -> RunningSequence | None:
        return self._waiting[0] if self._waiting else None

    def admit(self) -> list[RunningSequence]:
        """Give every free slot to a waiting sequence; returns those that start now."""
        started = []
        while self._free and self._waiting:
            sequence = self._waiting.popleft()
            sequence.slot = self._free.popleft()
            started.append(sequence)
        if started:
            self.running = sorted(self.running + started, key=lambda sequence: sequence.slot)
        return started

    def release_finished(self) -> list[RunningSequence]:
        """Take out the sequences that have a stop reason; their slots are free at once."""
        finished = [sequence for sequence in self.running if sequence.stop_reason]
        if finished:
            self.running = [sequence for sequence in self.running if not sequence.stop_reason]
            self._free.extend(sequence.slot for sequence in finished)
            # Low slots first, so that the answers of one group lie side by side.
            self._free = deque(sorted(self._free))
        return finished


def sequence_uniforms(seed: int, draw_id: int, sample: int) -> np.random.Generator:
    """The random numbers of one answer: a counter-based stream that depends on these three numbers alone."""
    return np.random.Generator(np.random.Philox(key=[seed % 2**64, draw_id % 2**64], counter=[0, 0, 0, sample]))
