"""The sampler for people with their own loop: submit scored groups, pop full batches."""

from __future__ import annotations

from typing import Any

import pytest

from dapo.sampling.library import DAPODynamicSampler, SubmittedGroup


def submit(sampler: DAPODynamicSampler, prompt_id: Any, flags: list[bool]) -> bool:
    size = len(flags)
    return sampler.submit_group(
        prompt_id,
        flags,
        [f"{prompt_id} answer {k}" for k in range(size)],
        [float(flag) for flag in flags],
        [10 + k for k in range(size)],
    )


def test_only_groups_that_disagree_are_accepted() -> None:
    sampler = DAPODynamicSampler(2, 2)
    assert submit(sampler, "a", [True, False]) is True
    assert submit(sampler, "b", [True, True]) is False
    assert submit(sampler, "c", [False, False]) is False
    assert submit(sampler, "d", [False, True]) is True


def test_a_batch_is_ready_at_its_size_and_comes_out_oldest_first() -> None:
    sampler = DAPODynamicSampler(2, 2)
    readiness = []
    for name in "abc":
        submit(sampler, name, [True, False])
        readiness.append(sampler.is_ready())
    assert readiness == [False, True, True]
    assert [group.prompt_id for group in sampler.pop_batch()] == ["a", "b"]
    assert not sampler.is_ready()


def test_a_popped_group_is_whole_and_in_the_order_it_was_handed_in() -> None:
    sampler = DAPODynamicSampler(1, 3)
    sampler.submit_group(7, [False, True, False], ["x", "y", "z"], [-1.0, 0.5, -1.5], [4, 5, 6])
    assert sampler.pop_batch() == [
        SubmittedGroup(7, (False, True, False), ("x", "y", "z"), (-1.0, 0.5, -1.5), (4, 5, 6))
    ]


def test_two_groups_of_one_prompt_stay_two_b45() -> None:
    """B45: [1,0] and [1,1] of the same prompt: the first is kept, the second rejected, none merged."""
    sampler = DAPODynamicSampler(1, 2)
    assert submit(sampler, "same", [True, False])
    assert not submit(sampler, "same", [True, True])
    assert [group.group_correctness for group in sampler.pop_batch()] == [(True, False)]


def test_correctness_decides_not_the_shaped_reward() -> None:
    sampler = DAPODynamicSampler(1, 2)
    assert not sampler.submit_group("a", [True, True], ["x", "y"], [1.0, 0.5], [10, 20])


def test_popping_too_early_says_how_many_are_there() -> None:
    sampler = DAPODynamicSampler(2, 2)
    submit(sampler, "a", [True, False])
    with pytest.raises(RuntimeError, match="only 1 of 2 groups"):
        sampler.pop_batch()
    submit(sampler, "b", [True, False])
    assert len(sampler.pop_batch()) == 2


def test_statistics_cover_the_samplers_whole_life() -> None:
    """4 submitted: 2 accepted, 1 all right, 1 all wrong: rate 2/4, also after the pop; then 3/5."""
    sampler = DAPODynamicSampler(2, 2)
    for flags in ([True, False], [True, True], [False, False], [False, True]):
        submit(sampler, "p", flags)
    expected = {
        "buffered_groups": 2,
        "rejected_all_correct": 1,
        "rejected_all_incorrect": 1,
        "effective_gradient_rate": 0.5,
    }
    assert sampler.statistics() == expected
    sampler.pop_batch()
    assert sampler.statistics() == {**expected, "buffered_groups": 0}
    submit(sampler, "q", [True, False])
    assert sampler.statistics() == {**expected, "buffered_groups": 1, "effective_gradient_rate": 0.6}


def test_statistics_of_a_new_sampler_are_zero_not_nan() -> None:
    assert DAPODynamicSampler(1, 2).statistics()["effective_gradient_rate"] == 0.0


@pytest.mark.parametrize("name", ["group_correctness", "responses", "rewards", "token_lengths"])
@pytest.mark.parametrize("size", [1, 3])
def test_a_sequence_of_another_length_than_the_group_is_refused_by_name(name: str, size: int) -> None:
    sampler = DAPODynamicSampler(1, 2)
    given: dict[str, list[Any]] = {
        "group_correctness": [True, False],
        "responses": ["x", "y"],
        "rewards": [1.0, 0.0],
        "token_lengths": [1, 2],
    }
    given[name] = (given[name] * 2)[:size]
    with pytest.raises(ValueError, match=f"{name} of prompt 'p' has {size} entries, group_size is 2"):
        sampler.submit_group("p", **given)
    assert sampler.statistics()["effective_gradient_rate"] == 0.0


def test_sizes_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="target_batch_size must be at least 1, got 0"):
        DAPODynamicSampler(0, 2)
    with pytest.raises(ValueError, match=r"group_size must be at least 2 .* got 1"):
        DAPODynamicSampler(1, 1)


def test_a_popped_group_has_its_advantages() -> None:
    """Rewards 1 0 0 0: mean 0.25, population deviation 0.433013."""
    sampler = DAPODynamicSampler(1, 4)
    submit(sampler, "a", [True, False, False, False])
    (group,) = sampler.pop_batch()
    assert group.advantages == pytest.approx([1.732051, -0.577350, -0.577350, -0.577350], abs=1e-6)


def test_eight_answers_to_each_of_eight_prompts_are_the_default() -> None:
    assert (DAPODynamicSampler().target_batch_size, DAPODynamicSampler(group_size=8).group_size) == (8, 8)
    assert DAPODynamicSampler(4).group_size == 8
