"""Which request runs where: waiting ones take free slots at once, finished ones leave them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dapo.records import StopReason
from dapo.rollout.engine import Request


@dataclass(eq=False)
class RunningSequence:
    """One answer while it is written."""

    request: Request
    limit: int
    """Most tokens it may have."""
    uniforms: np.random.Generator
    """Its own numbers, one per token, from (seed, draw id, sample) alone."""
    tokens: list[int]
    logprobs: list[float]
    stop_reason: StopReason | None = None

    @classmethod
    def of(cls, request: Request, limit: int) -> RunningSequence:
        """At its beginning, or behind the tokens that the request has already."""
        uniforms = sequence_uniforms(request.seed, request.draw.id, request.sample)
        uniforms.random(len(request.tokens))  # those that its tokens were drawn with
        return cls(request, limit, uniforms, list(request.tokens), list(request.logprobs))

    @property
    def context(self) -> tuple[int, ...]:
        """What stands before its next token."""
        return (*self.request.draw.prompt.tokens, *self.tokens)

    @property
    def longest(self) -> int:
        """Tokens that it may come to, prompt and answer together."""
        return len(self.request.draw.prompt.tokens) + self.limit


class Scheduler:
    """First come, first served. The running sequences always fill the first slots: their place in `running`."""

    def __init__(self) -> None:
        self.waiting: deque[RunningSequence] = deque()
        self.running: list[RunningSequence] = []

    @property
    def unfinished(self) -> bool:
        return bool(self.waiting or self.running)

    def admit(self, slots: int, fits: Callable[[RunningSequence], bool]) -> list[RunningSequence]:
        """Give every free slot to a waiting sequence, up to the first that does not fit in with those that run; returns
        those that start now, the last in `running`."""
        started: list[RunningSequence] = []
        while self.waiting and len(self.running) < slots and fits(self.waiting[0]):
            started.append(self.waiting.popleft())
            self.running.append(started[-1])
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

    def clear(self) -> Sequence[RunningSequence]:
        """Take out everything, in the order in which it came."""
        everything = [*self.running, *self.waiting]
        self.running.clear()
        self.waiting.clear()
        return everything


def sequence_uniforms(seed: int, draw_id: int, sample: int) -> np.random.Generator:
    """The random numbers of one answer: a counter-based stream that depends on these three numbers alone."""
    return np.random.Generator(np.random.Philox(key=[seed % 2**64, draw_id % 2**64], counter=[0, 0, 0, sample]))
