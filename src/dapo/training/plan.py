"""Which answers go into which pass on which rank: planned once from lengths alone, the same on every rank.

Every rank makes as many passes as the others, some of them empty: where parameters are sharded a pass is a row of
collectives, which all must enter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from dapo.training.batch import Answer

Pass = tuple[int, ...]
"""Places of the answers among those of the optimizer step, in order; none for an empty pass."""


@dataclass(frozen=True, slots=True)
class AnswerSize:
    """What planning knows of an answer."""

    group: int
    """Answers of one group that follow each other in a pass share their prompt."""
    prompt: int
    """Tokens."""
    answer: int
    """Tokens, at least 1."""

    @classmethod
    def of(cls, answer: Answer) -> AnswerSize:
        return cls(answer.group_id, len(answer.prompt.tokens), len(answer.completion.tokens))


def plan_passes(
    sizes: Sequence[AnswerSize], *, mini_bs: int, max_tokens: int, ranks: int = 1
) -> tuple[tuple[Pass, ...], ...]:
    """The passes of one optimizer step, by rank; every rank has as many.

    mini_bs answers at a time are shared out evenly, in runs. A rank's share is cut where it would have more than
    max_tokens packed tokens; an answer alone may have more.
    """
    plan: list[list[Pass]] = [[] for _ in range(ranks)]
    for start in range(0, len(sizes), mini_bs):
        places = range(start, min(start + mini_bs, len(sizes)))
        cuts = [list(_cut(share, sizes, max_tokens)) for share in _shares(places, ranks)]
        for together in zip_longest(*cuts, fillvalue=()):
            for passes, one in zip(plan, together, strict=True):
                passes.append(one)
    return tuple(map(tuple, plan))


def _shares(places: range, ranks: int) -> list[range]:
    """Neighbouring runs that differ by at most one; maybe none."""
    quotient, rest = divmod(len(places), ranks)
    edges = [rank * quotient + min(rank, rest) for rank in range(ranks + 1)]
    return [places[edges[rank] : edges[rank + 1]] for rank in range(ranks)]


def _cut(places: range, sizes: Sequence[AnswerSize], max_tokens: int) -> Iterator[Pass]:
    """Runs of at most max_tokens packed tokens: of an answer all but the last, and its prompt once."""
    run: list[int] = []
    tokens = 0
    for place in places:
        size = sizes[place]
        alone = size.prompt + size.answer - 1
        added = alone if not run or sizes[run[-1]].group != size.group else size.answer - 1
        if run and tokens + added > max_tokens:
            yield tuple(run)
            run, tokens, added = [], 0, alone
        run.append(place)
        tokens += added
    if run:
        yield tuple(run)
