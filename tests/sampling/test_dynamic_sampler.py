"""Rounds until the batch is full. Letters: i informative, r all right, w all wrong; one per draw."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest

from dapo.data.stream import PromptStream
from dapo.errors import ConfigError, RewardError, SamplingLimitError
from dapo.records import Draw, Group
from dapo.sampling.dynamic_sampler import Collection, round_size


def ids(collection: Collection | None) -> list[int]:
    assert collection is not None
    return [group.id for group in collection.groups]


def test_batch_is_the_first_groups_that_disagree_whole(script: Any, sampler_of: Any) -> None:
    collection = sampler_of(script("wiriiwi"), batch_size=3, dapo_gen_batch_size=5).next_batch(0)
    assert ids(collection) == [1, 3, 4]
    assert all(len(group.completions) == len(group.scores) == 2 for group in collection.groups)
    assert [(group.id, fate) for group, fate in collection.others] == [(0, "constant"), (2, "constant")]


def test_counts_say_what_became_of_every_group(script: Any, sampler_of: Any) -> None:
    """Rounds of 2 (w i) (r w) (i): share of round 3 is (1 + 1)/(4 + 2), 1.25 x 1/(1/3) = 3.75, cut to 2."""
    counts = sampler_of(script("wirwiw"), batch_size=2, dapo_gen_batch_size=2).next_batch(0).counts
    assert (counts.rounds, counts.generated, counts.kept) == (3, 5, 2)
    assert (counts.all_correct, counts.all_wrong) == (1, 2)
    assert (counts.discarded, counts.stale) == (0, 0)


def test_the_sister_systems_example_takes_two_rounds(script: Any, sampler_of: Any) -> None:
    """Two prompts, batch 1, one prompt a round: round 1 qualifies 0 groups, round 2 one."""
    sampler = sampler_of(script("ri"), 2, batch_size=1, dapo_gen_batch_size=1, dapo_max_num_gen_batches=2)
    counts = sampler.next_batch(0).counts
    assert (counts.rounds, counts.generated, counts.kept) == (2, 2, 1)
    assert counts.all_correct + counts.all_wrong == 1
    assert counts.discarded == 0


def test_rows_of_the_batch_keep_their_own_rewards_and_lengths_b29(sampler_of: Any, group_of: Any) -> None:
    """B29: rewards [0,0,0,0] and [1,0,1,0]: the batch is the second group, mean .5; before the filter it was .25."""

    def generate(draws: Sequence[Draw], version: int, wait: Any) -> Generator[Group | None, None, None]:
        yield group_of(draws[0], [0.0] * 4, version)
        yield group_of(draws[1], [1.0, 0.0, 1.0, 0.0], version)

    collection = sampler_of(generate, 2, batch_size=1, dapo_gen_batch_size=2).next_batch(0)
    (group,) = collection.groups
    assert group.id == 1
    assert group.rewards == [1.0, 0.0, 1.0, 0.0]
    assert group.lengths == [1, 2, 3, 4]
    assert [completion.text for completion in group.completions] == [f"answer {k}" for k in range(4)]
    dropped = [reward for other, _ in collection.others for reward in other.rewards]
    assert sum(group.rewards) / 4 == 0.5
    assert sum(group.rewards + dropped) / 8 == 0.25


def test_a_round_has_at_most_the_prompts_that_are_set(script: Any, sampler_of: Any) -> None:
    answers = script("i")
    sampler_of(answers, batch_size=3, dapo_gen_batch_size=2).next_batch(0)
    assert [len(asked) for asked in answers.rounds] == [2, 2]
    answers = script("i")
    sampler_of(answers, batch_size=3).next_batch(0)
    assert [len(asked) for asked in answers.rounds] == [3]


def test_answers_are_asked_of_the_present_weights(script: Any, sampler_of: Any) -> None:
    answers = script("i")
    sampler = sampler_of(answers, batch_size=1)
    for version in (0, 7):
        assert [group.version for group in sampler.next_batch(version).groups] == [version]
    assert answers.versions == [0, 7]


def test_out_of_rounds_is_an_error_with_all_counts_and_the_fix(script: Any, sampler_of: Any) -> None:
    """Rounds of 2: (w w) (i r). 4 generated, 1 kept, 1 right, 2 wrong; too hard rather than too easy."""
    sampler = sampler_of(script("wwirwww"), batch_size=3, dapo_gen_batch_size=2, dapo_max_num_gen_batches=2)
    with pytest.raises(SamplingLimitError) as caught:
        sampler.next_batch(0)
    assert caught.value.problem == (
        "only 1 of 3 groups disagree after 2 rounds: 4 groups generated, 1 kept (3 needed), 1 all right, 2 all wrong"
    )
    assert "too hard" in str(caught.value.fix)
    for setting in (
        "n_samples",
        "dapo_gen_batch_size",
        "dapo_max_num_gen_batches",
        'on_sampling_limit = "train_partial"',
    ):
        assert setting in str(caught.value.fix)
    assert caught.value.exit_code == 1


def test_out_of_rounds_says_when_the_data_is_too_easy(script: Any, sampler_of: Any) -> None:
    with pytest.raises(SamplingLimitError, match="too easy"):
        sampler_of(script("rwr"), batch_size=1, dapo_max_num_gen_batches=3).next_batch(0)


@pytest.mark.parametrize("limit", [1, 4])
def test_no_more_rounds_than_allowed(script: Any, sampler_of: Any, limit: int) -> None:
    answers = script("w")
    with pytest.raises(SamplingLimitError, match=f"after {limit} rounds"):
        sampler_of(answers, batch_size=2, dapo_max_num_gen_batches=limit).next_batch(0)
    assert len(answers.rounds) == limit


def test_train_partial_goes_on_with_what_there_is(script: Any, sampler_of: Any) -> None:
    sampler = sampler_of(script("wiww"), batch_size=2, dapo_max_num_gen_batches=2, on_sampling_limit="train_partial")
    assert ids(sampler.next_batch(0)) == [1]


def test_train_partial_with_nothing_is_still_an_error(script: Any, sampler_of: Any) -> None:
    sampler = sampler_of(script("w"), batch_size=2, dapo_max_num_gen_batches=2, on_sampling_limit="train_partial")
    with pytest.raises(SamplingLimitError, match="only 0 of 2"):
        sampler.next_batch(0)


def test_prompts_that_were_not_used_at_the_limit_are_drawn_next(
    script: Any, sampler_of: Any, stream_of: Callable[..., PromptStream]
) -> None:
    stream = stream_of(10)
    sampler = sampler_of(
        script("iw"), stream, batch_size=2, dapo_max_num_gen_batches=1, on_sampling_limit="train_partial"
    )
    assert ids(sampler.next_batch(0)) == [0]
    assert stream.position == 2


def test_what_is_left_at_the_end_of_the_data_is_a_smaller_last_batch_b28(script: Any, sampler_of: Any) -> None:
    """B28: 30 prompts, batch 16: [16, 14], each prompt once, then nothing."""
    sampler = sampler_of(script("i"), 30, batch_size=16)
    batches = [sampler.next_batch(version) for version in range(3)]
    assert [len(batch.groups) for batch in batches[:2]] == [16, 14]
    assert batches[2].groups == ()
    prompts = [group.prompt.index for batch in batches[:2] for group in batch.groups]
    assert sorted(prompts) == list(range(30))


def test_fewer_prompts_than_a_batch_make_one_batch_b28(script: Any, sampler_of: Any) -> None:
    """B28: 10 prompts, batch 16."""
    sampler = sampler_of(script("i"), 10, batch_size=16)
    assert len(sampler.next_batch(0).groups) == 10
    assert sampler.next_batch(1).groups == ()


def test_the_end_of_the_data_at_the_last_round_is_the_end_not_a_failure(script: Any, sampler_of: Any) -> None:
    """Two prompts in two rounds of one: the limit is reached just as the data ends, with one group kept."""
    sampler = sampler_of(script("wi"), 2, batch_size=2, dapo_gen_batch_size=1, dapo_max_num_gen_batches=2)
    assert ids(sampler.next_batch(0)) == [1]
    assert sampler.next_batch(1).groups == ()


def test_data_that_never_disagrees_ends_without_a_batch(script: Any, sampler_of: Any) -> None:
    sampler = sampler_of(script("w"), 3, batch_size=2)
    assert sampler.next_batch(0).groups == ()
    assert (sampler.counts.generated, sampler.counts.all_wrong) == (3, 3)


def test_collection_goes_on_over_an_epoch_border(
    script: Any, sampler_of: Any, stream_of: Callable[..., PromptStream]
) -> None:
    """Three prompts twice: draws 0 1 2 | 3 4 5; a batch of 2 from draws 2 and 3 lies in both epochs."""
    sampler = sampler_of(script("wwiiww"), stream_of(3, epochs=2), batch_size=2)
    assert ids(sampler.next_batch(0)) == [2, 3]


def test_without_filtering_one_round_fills_the_batch_whatever_agrees_b32(script: Any, sampler_of: Any) -> None:
    """B32: constant groups are trained (with advantage 0) and still counted for what they are."""
    answers = script("wirw")
    collection = sampler_of(answers, filtering=False, batch_size=3).next_batch(0)
    assert ids(collection) == [0, 1, 2]
    assert answers.rounds == [[0, 1, 2]]
    counts = collection.counts
    assert (counts.rounds, counts.generated, counts.kept, counts.all_correct, counts.all_wrong) == (1, 3, 1, 1, 1)


def test_without_filtering_the_last_batch_is_smaller_too(script: Any, sampler_of: Any) -> None:
    sampler = sampler_of(script("w"), 5, filtering=False, batch_size=3)
    assert [ids(sampler.next_batch(0)), ids(sampler.next_batch(1))] == [[0, 1, 2], [3, 4]]
    assert sampler.next_batch(2).groups == ()


def test_another_metric_than_the_reward_may_decide(sampler_of: Any, group_of: Any) -> None:
    """Draw 0 differs in reward only, draw 1 in acc only."""

    def generate(draws: Sequence[Draw], version: int, wait: Any) -> Generator[Group | None, None, None]:
        for draw in draws:
            rewards, acc = ([1.0, 0.5], [1.0, 1.0]) if draw.id == 0 else ([1.0, 1.0], [1.0, 0.0])
            yield group_of(draw, rewards, version, [{"acc": value} for value in acc])

    by_reward = sampler_of(generate, batch_size=1, dapo_gen_batch_size=2, max_staleness=1).next_batch(0)
    by_acc = sampler_of(
        generate, batch_size=1, dapo_gen_batch_size=2, max_staleness=1, filter_groups_metric="acc"
    ).next_batch(0)
    assert (ids(by_reward), ids(by_acc)) == ([0], [1])
    assert (by_acc.counts.all_correct, by_acc.counts.all_wrong) == (1, 0)


def test_an_unknown_metric_lists_the_known(sampler_of: Any, group_of: Any) -> None:
    def generate(draws: Sequence[Draw], version: int, wait: Any) -> Generator[Group | None, None, None]:
        yield group_of(draws[0], [1.0, 0.0], version, [{"acc": 1.0, "format": 1.0}, {"acc": 0.0}])

    for name in ("accuracy", "format"):  # one answer has no `format`
        with pytest.raises(ConfigError) as caught:
            sampler_of(generate, batch_size=1, filter_groups_metric=name).next_batch(0)
        assert f"filter_groups_metric is '{name}'" in caught.value.problem
        assert caught.value.fix == "use one of score, acc, format"


def test_a_nan_reward_stops_the_run_b47(sampler_of: Any, group_of: Any) -> None:
    """B47: a group with NaN is neither kept nor dropped in silence."""

    def generate(draws: Sequence[Draw], version: int, wait: Any) -> Generator[Group | None, None, None]:
        yield group_of(draws[0], [1.0, float("nan")], version)

    with pytest.raises(RewardError, match="not a number"):
        sampler_of(generate, batch_size=1).next_batch(0)


@pytest.mark.parametrize(
    ("missing", "kept", "generated", "limit", "size"),
    [
        (8, 0, 0, 8, 8),  # the first round is full
        (1, 0, 0, 8, 8),
        (4, 4, 8, 100, 10),  # share 5/10: 1.25 x 4/.5
        (1, 3, 8, 100, 4),  # share 4/10: 1.25/.4 = 3.125
        (1, 3, 6, 6, 3),  # share 4/8: 1.25/.5 = 2.5
        (2, 0, 8, 100, 25),  # share 1/10: 2.5/.1
        (2, 0, 8, 8, 8),  # never above the limit
        (1, 8, 8, 100, 2),  # share 9/10: 1.25/.9 = 1.39
    ],
)
def test_later_rounds_draw_what_the_share_of_good_groups_asks_for(
    missing: int, kept: int, generated: int, limit: int, size: int
) -> None:
    """min(limit, ceil(1.25 missing (generated + 2)/(kept + 1)))."""
    assert round_size(missing, kept, generated, limit) == size
