"""Good groups beyond the batch: kept and trained first while young enough, else counted and dropped."""

from __future__ import annotations

from typing import Any

from dapo.records import Draw, Prompt
from dapo.sampling.group_buffer import Buffered


def ids(groups: Any) -> list[int]:
    return [group.id for group in groups]


def test_three_and_three_less_four_are_two_that_come_first_b30(script: Any, sampler_of: Any) -> None:
    """B30: batch 4. Round 1, six prompts: 3 good. Round 2, share 4/8: 1.25 x 1/.5 -> three prompts: 3 good."""
    answers = script("iwiwiw" + "iii" + "i")
    sampler = sampler_of(answers, batch_size=4, dapo_gen_batch_size=6, max_staleness=1)
    first = sampler.next_batch(0)
    assert answers.rounds == [[0, 1, 2, 3, 4, 5], [6, 7, 8]]
    assert ids(first.groups) == [0, 2, 4, 6]
    assert [(kept.group.id, kept.version) for kept in sampler.buffer.kept] == [(7, 0), (8, 0)]
    assert first.counts.discarded == 0

    second = sampler.next_batch(1)
    assert ids(second.groups) == [7, 8, 9, 10]
    assert [group.version for group in second.groups] == [0, 0, 1, 1]
    prompts = [group.prompt.index for batch in (first, second) for group in batch.groups]
    assert len(set(prompts)) == 8


def test_a_full_buffer_needs_no_round(script: Any, sampler_of: Any) -> None:
    answers = script("i")
    sampler = sampler_of(answers, batch_size=2, dapo_gen_batch_size=4, max_staleness=1)
    assert ids(sampler.next_batch(0).groups) == [0, 1]
    second = sampler.next_batch(1)
    assert ids(second.groups) == [2, 3]
    assert (second.counts.rounds, second.counts.generated) == (0, 0)
    assert answers.rounds == [[0, 1, 2, 3]]


def test_surplus_older_than_allowed_is_dropped_and_counted(script: Any, sampler_of: Any) -> None:
    """Six good groups of version 0, two trained an update: age 1 is trained, age 2 is stale under max_staleness 1."""
    sampler = sampler_of(script("i"), batch_size=2, dapo_gen_batch_size=6, max_staleness=1)
    assert ids(sampler.next_batch(0).groups) == [0, 1]
    assert ids(sampler.next_batch(1).groups) == [2, 3]
    third = sampler.next_batch(2)
    assert third.counts.stale == 2
    assert [(group.id, fate) for group, fate in third.others] == [(4, "stale"), (5, "stale")]
    assert ids(third.groups) == [6, 7]


def test_the_age_of_surplus_counts_from_the_weights_that_wrote_it(script: Any, sampler_of: Any) -> None:
    """Written by version 5, trained by version 6: age 1."""
    sampler = sampler_of(script("i"), batch_size=2, dapo_gen_batch_size=4, max_staleness=1)
    assert ids(sampler.next_batch(5).groups) == [0, 1]
    second = sampler.next_batch(6)
    assert ids(second.groups) == [2, 3]
    assert second.counts.stale == 0


def test_max_staleness_is_the_age_that_is_still_trained(script: Any, sampler_of: Any) -> None:
    """As above with 2: the groups of age 2 are trained too."""
    sampler = sampler_of(script("i"), batch_size=2, dapo_gen_batch_size=6, max_staleness=2)
    batches = [sampler.next_batch(version) for version in range(3)]
    assert [ids(batch.groups) for batch in batches] == [[0, 1], [2, 3], [4, 5]]
    assert [batch.counts.stale for batch in batches] == [0, 0, 0]


def test_without_staleness_surplus_is_dropped_and_counted(script: Any, sampler_of: Any) -> None:
    """Finished last to first: when draw 0 completes the batch, draws 1 (good) and 2 (wrong) are done already."""
    answers = script("iiwi", order=lambda draws: draws[::-1])
    sampler = sampler_of(answers, batch_size=1, dapo_gen_batch_size=3)
    first = sampler.next_batch(0)
    assert ids(first.groups) == [0]
    assert first.counts.discarded == 1
    assert sorted((group.id, fate) for group, fate in first.others) == [(1, "surplus"), (2, "surplus")]
    assert (first.counts.generated, first.counts.kept, first.counts.all_wrong) == (3, 2, 1)
    assert not sampler.buffer.kept


def test_prompts_of_dropped_surplus_are_not_lost(script: Any, sampler_of: Any) -> None:
    """Draw 1 was dropped as surplus above; its prompt is the next update's first."""
    answers = script("iiwi", order=lambda draws: draws[::-1])
    sampler = sampler_of(answers, batch_size=1, dapo_gen_batch_size=3)
    batches = [sampler.next_batch(version) for version in range(2)]
    assert [ids(batch.groups) for batch in batches] == [[0], [1]]
    assert batches[1].groups[0].version == 1


def test_surplus_of_a_saved_run_is_trained_first(script: Any, sampler_of: Any, group_of: Any) -> None:
    saved = Draw(3, Prompt(3, "", (1,)))
    kept = [Buffered(group_of(saved, (1.0, 0.0), 4), 4)]
    sampler = sampler_of(script("i"), batch_size=2, max_staleness=1, buffered=kept)
    batch = sampler.next_batch(5)
    assert [(group.id, group.version) for group in batch.groups] == [(3, 4), (0, 5)]


def test_the_last_batch_of_the_data_is_the_surplus(script: Any, sampler_of: Any) -> None:
    """Five good prompts in one round: 3, then the 2 left over, then the end."""
    sampler = sampler_of(script("i"), 5, batch_size=3, dapo_gen_batch_size=5, max_staleness=3)
    assert ids(sampler.next_batch(0).groups) == [0, 1, 2]
    assert ids(sampler.next_batch(1).groups) == [3, 4]
    assert sampler.next_batch(2).groups == ()


def test_surplus_counts_towards_a_partial_batch(script: Any, sampler_of: Any) -> None:
    """One left over from update 0, then only wrong ones: the update runs on the one."""
    sampler = sampler_of(
        script("iiiw"),
        batch_size=2,
        dapo_gen_batch_size=3,
        dapo_max_num_gen_batches=2,
        max_staleness=1,
        on_sampling_limit="train_partial",
    )
    assert ids(sampler.next_batch(0).groups) == [0, 1]
    assert ids(sampler.next_batch(1).groups) == [2]
