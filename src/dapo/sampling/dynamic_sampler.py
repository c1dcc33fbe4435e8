"""The trainer's dynamic sampler: generation rounds until the batch is full (DAPO, Algorithm 1, lines 4 to 7)."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal, Protocol

from dapo.algorithms.group_filters import Verdict, judge
from dapo.errors import ConfigError, SamplingLimitError
from dapo.records import Draw, Group
from dapo.sampling.alike import alike
from dapo.sampling.group_buffer import Buffered, GroupBuffer
from dapo.sampling.settings import CollectionSettings

Fate = Literal["trained", "constant", "surplus", "stale"]

MARGIN = 1.25
"""Later rounds draw this much more than the observed share of informative groups asks for."""


class DrawSource(Protocol):
    """Where prompts come from."""

    def take(self, count: int) -> list[Draw]:
        """At most `count` further draws; fewer, and at last none, where the data ends."""

    def give_back(self, count: int) -> None:
        """The last `count` draws were not used after all; they are drawn again next."""


Wait = Callable[[int], bool]
"""Whether the scores of so many groups, which are written, must be known before more is written."""
Generate = Callable[[Sequence[Draw], int, Wait], Generator[Group | None, None, None]]
"""Scored groups of the draws, in any order, written by the weights of the given version. None: still working.
Closing it stops the work."""


@dataclass
class CollectionCounts:
    """One update's collection in numbers."""

    rounds: int = 0
    generated: int = 0
    """Groups generated and judged."""
    kept: int = 0
    """Generated groups that qualified."""
    all_correct: int = 0
    all_wrong: int = 0
    discarded: int = 0
    """Qualified groups that no update will use."""
    stale: int = 0
    """Buffered groups dropped for their age."""


@dataclass(frozen=True)
class Collection:
    """What one update trains on, and what became of everything else."""

    groups: tuple[Group, ...]
    """Empty when the data has ended."""
    counts: CollectionCounts
    others: tuple[tuple[Group, Fate], ...] = ()
    """Groups that are not trained now and will not be."""
    generated: tuple[Group, ...] = ()
    """Every group that these weights wrote, whatever becomes of it."""


@dataclass
class _Open:
    """A collection that is still going on."""

    counts: CollectionCounts = field(default_factory=CollectionCounts)
    others: list[tuple[Group, Fate]] = field(default_factory=list)
    generated: list[Group] = field(default_factory=list)


class DynamicSampler:
    """Draws prompts, has them answered and scored, and keeps whole groups that disagree."""

    def __init__(
        self,
        settings: CollectionSettings,
        draws: DrawSource,
        generate: Generate,
        *,
        filtering: bool,
        buffered: Sequence[Buffered[Group]] = (),
    ) -> None:
        self.settings = settings
        self.buffer: GroupBuffer[Group] = GroupBuffer(buffered)
        self._draws = draws
        self._generate = generate
        self._filtering = filtering
        self.counts = CollectionCounts()
        """Of the collection that is going on, or was the last."""

    def next_batch(self, version: int) -> Collection:
        """Groups for the update that the weights of `version` are about to get; none at the end of the data.

        The last batch of the data may be smaller. Raises SamplingLimitError when the rounds are used up.
        """
        collection = _Open()
        self.counts = collection.counts
        for group in self.buffer.drop_older_than(version - self.settings.max_staleness):
            collection.counts.stale += 1
            collection.others.append((group, "stale"))
        while len(self.buffer) < self.settings.batch_size:
            draws = self._draws.take(self._round_size(collection.counts))
            if not draws:
                break
            if collection.counts.rounds == self.settings.dapo_max_num_gen_batches:
                self._draws.give_back(len(draws))
                self._at_limit(collection)
                break
            collection.counts.rounds += 1
            self._round(draws, version, collection)
        groups = self.buffer.take(self.settings.batch_size)
        return Collection(tuple(groups), collection.counts, tuple(collection.others), tuple(collection.generated))

    def _round_size(self, counts: CollectionCounts) -> int:
        """A full round first; then what the share of informative groups seen so far asks for."""
        missing = self.settings.batch_size - len(self.buffer)
        if not self._filtering:
            return missing
        return round_size(missing, counts.kept, counts.generated, self.settings.round_limit)

    def _round(self, draws: Sequence[Draw], version: int, collection: _Open) -> None:
        """Judge the groups of one round in the order of their draws, whatever order they finish in.

        When surplus is of no use, the round stops as soon as the batch is full, and draws that were not judged
        go back. Judging in order of draws keeps this from preferring short answers.
        """
        waiting: dict[int, Group] = {}
        judged = 0
        with closing(self._generate(draws, version, self._could_be_full)) as generation:
            for group in generation:
                if group is not None:
                    waiting[group.id] = group
                while judged < len(draws) and draws[judged].id in waiting and not self._full_for_good:
                    self._judge(waiting.pop(draws[judged].id), version, collection)
                    judged += 1
                if self._full_for_good:
                    break
        for group in waiting.values():
            self._discard(group, collection)
        self._draws.give_back(len(draws) - judged)

    @property
    def _full_for_good(self) -> bool:
        return self.settings.max_staleness == 0 and len(self.buffer) >= self.settings.batch_size

    def _could_be_full(self, unscored: int) -> bool:
        """Whether so many more groups could fill the batch. Their scores are then waited for, so that what is written
        in vain does not depend on how fast a reward is."""
        return self.settings.max_staleness == 0 and len(self.buffer) + unscored >= self.settings.batch_size

    def _judge(self, group: Group, version: int, collection: _Open) -> None:
        verdict = self._count(group, collection)
        if verdict == "informative" or not self._filtering:
            self.buffer.keep(group, version)
        else:
            collection.others.append((group, "constant"))

    def _discard(self, group: Group, collection: _Open) -> None:
        """A group that was finished before the round could be stopped, but that no update will use."""
        collection.counts.discarded += self._count(group, collection) == "informative"
        collection.others.append((group, "surplus"))

    def _count(self, group: Group, collection: _Open) -> Verdict:
        verdict, counts = judge(self._metric(group)), collection.counts
        collection.generated.append(group)
        counts.generated += 1
        counts.kept += verdict == "informative"
        counts.all_correct += verdict == "all_correct"
        counts.all_wrong += verdict == "all_wrong"
        return verdict

    def _metric(self, group: Group) -> list[float]:
        """The raw numbers that decide: never shaped ones."""
        name = self.settings.filter_groups_metric
        try:
            return [score.metric(name) for score in group.scores]
        except KeyError:
            known = ["score", *sorted({key for score in group.scores for key in score.metrics})]
            raise ConfigError(
                f"filter_groups_metric is {name!r}, which the reward function does not return for every answer",
                fix=f"use one of {', '.join(known)}",
            ) from None

    def _at_limit(self, collection: _Open) -> None:
        """Out of rounds: an error, unless a smaller batch is welcome and there is one."""
        counts = collection.counts
        if self.settings.on_sampling_limit == "train_partial" and len(self.buffer):
            return
        needed, have = self.settings.batch_size, len(self.buffer)
        raise SamplingLimitError(
            f"only {have} of {needed} groups disagree after {counts.rounds} rounds: {counts.generated} groups "
            f"generated, {counts.kept} kept ({needed} needed), {counts.all_correct} all right, "
            f"{counts.all_wrong} all wrong",
            fix=_advice(counts, alike(collection.generated)),
        )


def round_size(missing: int, kept: int, generated: int, limit: int) -> int:
    """Prompts of the next round: what should bring `missing` informative groups, and never above `limit`.

    The share of informative groups is taken from this collection, kept / generated, with one imagined group
    of either kind so that no share is 0 or 1. The first round is full.
    """
    if generated == 0:
        return limit
    share = (kept + 1) / (generated + 2)
    return min(limit, math.ceil(MARGIN * missing / share))


def _advice(counts: CollectionCounts, example: str) -> str:
    if counts.all_correct > counts.all_wrong:
        task = "the data is too easy for this model: use harder prompts"
    else:
        task = "the data is too hard for this model: use easier prompts, or check the reward function"
    if example:
        task = f"{example}; if both mean the same, the reward misreads one of them; else {task}"
    return (
        f"{task}; or raise n_samples, dapo_gen_batch_size or dapo_max_num_gen_batches; "
        'or train on what there is with on_sampling_limit = "train_partial"'
    )
