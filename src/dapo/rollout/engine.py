"""What a rollout engine is: the contract that every engine keeps, and that one test suite checks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

from dapo.records import AnswerLimit, Completion, Draw, Prompt
from dapo.rollout.settings import Sampling


@dataclass(frozen=True, slots=True)
class Request:
    """One answer to be written, or to go on with."""

    draw: Draw
    sample: int
    """Which of the prompt's answers: 0..n-1."""
    sampling: Sampling
    seed: int
    tokens: tuple[int, ...] = ()
    """Written already; the answer goes on behind them."""
    logprobs: tuple[float, ...] = ()
    """Of those tokens, when they were drawn."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A request whose answer is complete."""

    request: Request
    completion: Completion


@dataclass(frozen=True)
class Rollout:
    """All answers to one drawn prompt."""

    draw: Draw
    completions: tuple[Completion, ...]


@dataclass
class RolloutCounters:
    """What an engine computed since it was made; read for progress and speed, never for results."""

    prompt_tokens: int = 0
    """Tokens put through the model before an answer's first or next one; a prompt counts once, however many answers it
    has."""
    sampled_tokens: int = 0
    """Tokens drawn, those of stopped answers included."""
    finished: int = 0
    """Answers completed."""


class RolloutEngine(Protocol):
    """Writes answers, many side by side.

    Log-probabilities are float32, one per token, of the distribution sampled from. Which tokens are drawn depends only
    on the weights, `sampling`, `seed`, the draw's id and the sample, never on what else is written beside it, nor on
    where an answer was interrupted. In float32; in bfloat16 a product's rounding can depend on how many rows it has,
    and so, rarely, a token on its neighbours.
    """

    counters: RolloutCounters
    version: int
    """Of the weights that answers are written with."""

    def check(self, prompts: Sequence[Prompt], max_new_tokens: int) -> list[str]:
        """Refuse before a run begins what would fail in its middle; returns what a person should know."""

    def limit(self, max_new_tokens: int) -> AnswerLimit:
        """Where answers are cut."""

    def submit(self, requests: Sequence[Request]) -> None:
        """Have these answers written, after those submitted before."""

    def step(self) -> list[Finished]:
        """Give every answer that is being written one more token; returns those that are complete by it."""

    def abort(self) -> list[Request]:
        """Stop whatever is unfinished; returns it, each with the tokens it has, in the order it was submitted."""

    def load(self, version: int) -> None:
        """Go on with the weights of `version`. Answers that are being written keep their tokens, and go on by the new
        weights alone: nothing computed by the old ones is used again."""


def answer_all(
    engine: RolloutEngine, draws: Sequence[Draw], sampling: Sampling, seed: int
) -> Generator[Rollout | None, None, None]:
    """Yield each draw's `sampling.n` answers when all are written, in any order, and None after steps that finished no
    group. Closing the iterator stops what is still being written."""
    written: dict[int, dict[int, Completion]] = {draw.id: {} for draw in draws}
    engine.submit([Request(draw, sample, sampling, seed) for draw in draws for sample in range(sampling.n)])
    try:
        while written:
            whole = False
            for finished in engine.step():
                draw = finished.request.draw
                written[draw.id][finished.request.sample] = finished.completion
                if len(written[draw.id]) == sampling.n:
                    whole = True
                    yield Rollout(draw, tuple(answer for _, answer in sorted(written.pop(draw.id).items())))
            if not whole:
                yield None
    finally:
        engine.abort()
