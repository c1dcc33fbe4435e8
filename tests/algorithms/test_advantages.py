"""Group advantages: (r - mean) / (std + eps)."""

from __future__ import annotations

import math

import pytest
import torch

from dapo.algorithms.advantages import Scale, compute_group_advantages

ROOT_3 = 3**0.5


def test_population_deviation_by_default_sample_deviation_by_setting_b34() -> None:
    """B34: mean .25. Population std sqrt(3)/4: [.75, -.25 ...]/.4330 = [sqrt 3, -1/sqrt 3 ...]. Sample std .5."""
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0])
    torch.testing.assert_close(
        compute_group_advantages(rewards), torch.tensor([ROOT_3, -1 / ROOT_3, -1 / ROOT_3, -1 / ROOT_3])
    )
    sample = compute_group_advantages(rewards, eps=1e-6, correction=1)
    torch.testing.assert_close(sample, torch.tensor([1.5, -0.5, -0.5, -0.5]), rtol=1e-5, atol=0)


def test_eps_is_added_to_the_deviation() -> None:
    """[1, 0]: +-.5/(.5 + eps); eps .5 halves it."""
    assert compute_group_advantages(torch.tensor([1.0, 0.0]), 0.5).tolist() == [0.5, -0.5]
    assert compute_group_advantages(torch.tensor([1.0, 0.0]), 0.0).tolist() == [1.0, -1.0]


@pytest.mark.parametrize(("size", "bound"), [(4, 1.5), (8, 2.4749), (16, 3.75)])
def test_one_outlier_reaches_the_bound_and_nothing_goes_beyond_b41(size: int, bound: float) -> None:
    """B41: |A| <= (n-1)/sqrt(n) with the sample deviation, reached by one answer that stands alone."""
    lone = torch.zeros(size)
    lone[0] = 1.0
    assert compute_group_advantages(lone, 0.0, correction=1)[0].item() == pytest.approx(bound, abs=1e-4)
    many = torch.rand(100, size, generator=torch.Generator().manual_seed(0))
    assert compute_group_advantages(many, 0.0, correction=1).abs().max().item() <= bound


@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_a_group_that_agrees_scores_exactly_zero_b41(eps: float) -> None:
    """B41: never x / (0 + eps), whose float noise would be blown up by 1e8."""
    for rewards in ([0.1] * 3, [0.1 + 0.2, 0.3], [1.0 / 3] * 7, [0.0] * 4, [-5.0] * 2):
        double = torch.tensor(rewards, dtype=torch.float64)
        assert compute_group_advantages(double, eps).tolist() == [0.0] * len(rewards)
        assert compute_group_advantages(double.float(), eps).tolist() == [0.0] * len(rewards)


def test_a_small_real_difference_is_not_taken_for_noise_and_kept_in_float64() -> None:
    """[1, 1.00001]: 5e-6/(5e-6 + 1e-8) = 1/1.002; in float32 the difference itself would be off by a thousandth."""
    advantages = compute_group_advantages(torch.tensor([1.0, 1.00001], dtype=torch.float64))
    torch.testing.assert_close(advantages, torch.tensor([-1 / 1.002, 1 / 1.002]).double(), rtol=1e-6, atol=0)


def test_batch_scaling_obeys_the_correction_too() -> None:
    """[1,0 | 10,0]: mean 2.75, squares 3.0625 + 2 x 7.5625 + 52.5625 = 70.75; std sqrt(70.75/4) = 4.20565."""
    advantages = compute_group_advantages(torch.tensor([[1.0, 0.0], [10.0, 0.0]]), scale="batch")
    expected = torch.tensor([[0.5, -0.5], [5.0, -5.0]]) / 4.205651
    torch.testing.assert_close(advantages, expected, rtol=1e-5, atol=0)


def test_scaling_modes_do_what_their_names_say_b42() -> None:
    """B42: [1,0] and [10,0], sample deviation: .7071 per group, 4.8563 over all four."""
    rewards = torch.tensor([[1.0, 0.0], [10.0, 0.0]])
    group = compute_group_advantages(rewards, correction=1, scale="group")
    batch = compute_group_advantages(rewards, correction=1, scale="batch")
    none = compute_group_advantages(rewards, correction=1, scale="none")
    torch.testing.assert_close(group, torch.tensor([[0.7071, -0.7071]] * 2), rtol=0, atol=1e-4)
    torch.testing.assert_close(batch, torch.tensor([[0.10296, -0.10296], [1.02960, -1.02960]]), rtol=0, atol=1e-5)
    assert none.tolist() == [[0.5, -0.5], [5.0, -5.0]]


def test_every_group_is_normalised_by_itself_b43() -> None:
    """B43: [1,0 | 10,0] with the sample deviation: +-.7071 in both groups, four values out."""
    advantages = compute_group_advantages(torch.tensor([[1.0, 0.0], [10.0, 0.0]]), correction=1).view(-1)
    torch.testing.assert_close(advantages, torch.tensor([0.7071, -0.7071, 0.7071, -0.7071]), rtol=0, atol=1e-4)


def test_advantages_are_not_whitened_again_over_the_batch_b44() -> None:
    """B44: [1,0,0,0] and [1,1,1,0], sample std .5 each; the eight values' own deviation, .926, divides nothing."""
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]])
    expected = torch.tensor([[1.5, -0.5, -0.5, -0.5], [0.5, 0.5, 0.5, -1.5]])
    torch.testing.assert_close(compute_group_advantages(rewards, correction=1), expected)


def test_two_groups_of_one_prompt_stay_two_b45() -> None:
    """B45: [1,0] and [1,1] of the same prompt: +-.7071 and zeros, not the merged [.5, -1.5, .5, .5]."""
    advantages = compute_group_advantages(torch.tensor([[1.0, 0.0], [1.0, 1.0]]), correction=1)
    torch.testing.assert_close(advantages[0], torch.tensor([0.7071, -0.7071]), rtol=0, atol=1e-4)
    assert advantages[1].tolist() == [0.0, 0.0]


def test_groups_of_one_are_refused_b34() -> None:
    """B34: one answer has nothing to be compared with."""
    with pytest.raises(ValueError, match="at least 2 answers"):
        compute_group_advantages(torch.tensor([[1.0], [0.0]]))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float16, torch.float32, torch.float64])
def test_any_number_type_is_a_reward(dtype: torch.dtype) -> None:
    """[1, 0]: +-1 with the population deviation, in a float type."""
    advantages = compute_group_advantages(torch.tensor([1, 0]).to(dtype))
    assert advantages.dtype == (dtype if dtype.is_floating_point else torch.float32)
    assert advantages.tolist() == pytest.approx([1.0, -1.0])


def test_large_equal_offsets_do_not_cost_precision() -> None:
    """[10001, 10000]: as +-1 as [1, 0], although float32 squares of 10000 keep only 8 units apart."""
    advantages = compute_group_advantages(torch.tensor([10001.0, 10000.0]))
    assert advantages.tolist() == pytest.approx([1.0, -1.0], abs=1e-6)


@pytest.mark.parametrize("scale", ["group", "none"])
def test_a_nan_reward_surfaces_in_its_own_group_only_b47(scale: Scale) -> None:
    """B47: NaN compares as neither the same nor different, so it must not pass for a group that agrees."""
    rewards = torch.tensor([[1.0, math.nan], [1.0, 0.0]])
    advantages = compute_group_advantages(rewards, scale=scale)
    assert advantages[0].isnan().all()
    assert advantages[1].isfinite().all()


def test_advantages_take_any_layout_and_refuse_other_shapes() -> None:
    """The transpose of [[1, 1], [0, 1]]: groups 1 0 and 1 1."""
    rewards = torch.tensor([[1.0, 1.0], [0.0, 1.0]]).T
    assert not rewards.is_contiguous()
    assert compute_group_advantages(rewards).flatten().tolist() == pytest.approx([1.0, -1.0, 0.0, 0.0])
    for shape in ((), (2, 2, 2)):
        with pytest.raises(ValueError, match=r"rewards must be \(G,\) or \(P, G\)"):
            compute_group_advantages(torch.ones(shape))
