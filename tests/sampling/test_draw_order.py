"""Groups are judged in the order of their draws, so that early stopping cannot prefer short answers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dapo.data.stream import PromptStream
from dapo.errors import ConfigError
from dapo.records import Draw, Group
from dapo.sampling.dynamic_sampler import Collection


def test_groups_are_trained_in_the_order_of_draws_whatever_order_they_finish_in(script: Any, sampler_of: Any) -> None:
    answers = script("wiiiw", order=lambda draws: [draws[k] for k in (4, 3, 0, 2, 1)])
    collection = sampler_of(answers, batch_size=2, dapo_gen_batch_size=5).next_batch(0)
    assert [group.id for group in collection.groups] == [1, 2]


def test_stopping_early_does_not_prefer_answers_that_finish_early(sampler_of: Any, group_of: Any) -> None:
    """Odd draws have short answers and are done first, even ones long: the batch is still draws 0, 1, 2, 3.

    By order of finishing it would have been 1, 3, 5, 7: only short answers.
    """

    def generate(draws: Sequence[Draw], version: int, wait: Any) -> Generator[Group | None, None, None]:
        for draw in sorted(draws, key=lambda draw: draw.id % 2 == 0):
            yield group_of(draw, (1.0, 0.0) if draw.id % 2 else (0.0, 1.0, 0.0), version)

    collection = sampler_of(generate, batch_size=4, dapo_gen_batch_size=8).next_batch(0)
    assert [group.id for group in collection.groups] == [0, 1, 2, 3]
    assert [max(group.lengths) for group in collection.groups] == [3, 2, 3, 2]


def test_a_full_batch_stops_the_round_and_gives_back_what_was_not_judged(
    script: Any, sampler_of: Any, stream_of: Callable[..., PromptStream]
) -> None:
    answers, stream = script("iwi"), stream_of(100)
    sampler_of(answers, stream, batch_size=2, dapo_gen_batch_size=8).next_batch(0)
    assert answers.finished == [0, 1, 2]
    assert answers.closed == 1
    assert stream.position == 3


def test_prompts_that_were_given_back_are_the_next_ones_drawn(script: Any, sampler_of: Any) -> None:
    answers = script("i")
    sampler = sampler_of(answers, batch_size=2, dapo_gen_batch_size=8)
    sampler.next_batch(0)
    assert [group.id for group in sampler.next_batch(1).groups] == [2, 3]
    assert answers.rounds == [[0, 1, 2, 3, 4, 5, 6, 7], [2, 3, 4, 5, 6, 7, 8, 9]]


def test_a_round_whose_surplus_is_kept_runs_to_its_end(
    script: Any, sampler_of: Any, stream_of: Callable[..., PromptStream]
) -> None:
    answers, stream = script("i"), stream_of(100)
    sampler_of(answers, stream, batch_size=2, dapo_gen_batch_size=8, max_staleness=1).next_batch(0)
    assert len(answers.finished) == 8
    assert stream.position == 8


def test_generation_is_closed_after_every_round(script: Any, sampler_of: Any) -> None:
    answers = script("wwwii")
    sampler_of(answers, batch_size=2, dapo_gen_batch_size=2).next_batch(0)
    assert answers.closed == len(answers.rounds) == 3


def test_the_unknown_metric_error_leaves_through_the_sampler(script: Any, sampler_of: Any) -> None:
    answers = script("i")
    with pytest.raises(ConfigError):
        sampler_of(answers, batch_size=1, filter_groups_metric="acc").next_batch(0)
    assert answers.finished == [0]


def collect(sampler: Any) -> list[Collection]:
    batches: list[Collection] = []
    while (batch := sampler.next_batch(len(batches))).groups:
        batches.append(batch)
    return batches


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    letters=st.text("iiirw", min_size=1, max_size=40),
    batch_size=st.integers(1, 5),
    gen_batch=st.integers(1, 7),
    max_staleness=st.sampled_from([0, 1, 2, 100]),
    finishing=st.randoms(use_true_random=False),
)
def test_whatever_the_verdicts_batches_are_exact_and_no_group_is_lost_or_doubled(
    script: Any,
    sampler_of: Any,
    letters: str,
    batch_size: int,
    gen_batch: int,
    max_staleness: int,
    finishing: Random,
) -> None:
    """The good draws, in order, less the stale ones (which are counted), cut into batches; only the last is short."""
    sampler = sampler_of(
        script(letters, order=lambda draws: finishing.sample(draws, len(draws))),
        len(letters),
        batch_size=batch_size,
        dapo_gen_batch_size=gen_batch,
        dapo_max_num_gen_batches=1000,
        max_staleness=max_staleness,
    )
    batches = collect(sampler)
    trained = [group.id for batch in batches for group in batch.groups]
    fates: dict[str, list[int]] = {"stale": [], "constant": [], "surplus": []}
    for batch in batches:
        for group, fate in batch.others:
            fates[fate].append(group.id)
        counts = batch.counts
        assert counts.generated == counts.kept + counts.all_correct + counts.all_wrong
        assert counts.stale == sum(fate == "stale" for _, fate in batch.others)
        assert all(version - group.version <= max_staleness for version, group in _with_version(batches, batch))
    good = [number for number, letter in enumerate(letters) if letter == "i"]
    assert trained == [number for number in good if number in trained]
    assert not set(trained) & set(fates["stale"])
    # The collection that found the data at its end is counted too, though no update came of it.
    assert len(good) == len(trained) + len(fates["stale"]) + sampler.counts.stale
    assert all(len(batch.groups) == batch_size for batch in batches[:-1])
    assert len(set(fates["constant"])) == len(fates["constant"])
    assert not set(fates["constant"]) & set(good)
    if max_staleness in (0, 100):
        assert trained == good
    if max_staleness > 0:
        assert not fates["surplus"]


def _with_version(batches: list[Collection], batch: Collection) -> list[tuple[int, Group]]:
    """The groups of a batch with the version of the weights that they update."""
    return [(batches.index(batch), group) for group in batch.groups]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(letters=st.text("irw", min_size=1, max_size=30), first=st.randoms(), second=st.randoms())
def test_the_order_of_finishing_never_changes_what_is_trained(
    script: Any, sampler_of: Any, letters: str, first: Random, second: Random
) -> None:
    trained = []
    for finishing in (first, second):
        answers = script(letters, order=lambda draws, finishing=finishing: finishing.sample(draws, len(draws)))
        sampler = sampler_of(answers, len(letters), batch_size=2, dapo_gen_batch_size=4, dapo_max_num_gen_batches=100)
        trained.append([[group.id for group in batch.groups] for batch in collect(sampler)])
    assert trained[0] == trained[1]
