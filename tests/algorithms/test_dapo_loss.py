"""The DAPO loss for people with their own loop. Ratios are exp(logprobs - old), with old = 0 unless said."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dapo.algorithms.dapo_loss import DAPOConfig, DAPOLoss

NAN = math.nan


def logs(rows: list[list[float]]) -> Tensor:
    """Log-probabilities (float64) that give these ratios over old = 0."""
    return torch.tensor(rows, dtype=torch.float64).log().requires_grad_()


def run(
    ratios: list[list[float]],
    advantages: list[float] | list[list[float]],
    mask: list[list[int]] | None = None,
    **options: Any,
) -> tuple[dict[str, Tensor], Tensor]:
    """The loss's dictionary and d loss / d logprobs."""
    logprobs = logs(ratios)
    result = DAPOLoss(DAPOConfig(**options))(
        logprobs,
        torch.zeros_like(logprobs),
        torch.tensor(advantages, dtype=torch.float64),
        None if mask is None else torch.tensor(mask),
    )
    (gradient,) = torch.autograd.grad(result["loss"], logprobs)
    return result, gradient


def close(actual: Tensor, expected: object) -> None:
    torch.testing.assert_close(actual.detach(), torch.tensor(expected, dtype=actual.dtype), rtol=1e-6, atol=1e-9)


def test_result_holds_loss_surrogates_and_clip_shares() -> None:
    """B91: ratios [1.3, 1.25 | .75, .7], A [1 | -1]: losses [-1.28, -1.25 | .8, .8], mean -.2325; 1 high, 2 low."""
    result, gradient = run([[1.30, 1.25], [0.75, 0.70]], [1.0, -1.0])
    close(result["loss"], -0.2325)
    assert result["surrogate1"].item() == pytest.approx(0.275)  # (1.30 + 1.25 - 0.75 - 0.70) / 4
    assert result["surrogate2"].item() == pytest.approx(0.2325)  # (1.28 + 1.25 - 0.8 - 0.8) / 4
    close(result["up_clip_ratio"], 0.25)
    close(result["low_clip_ratio"], 0.5)
    close(result["clip_ratio"], 0.75)
    close(gradient, [[0.0, -1.25 / 4], [0.0, 0.0]])
    assert result.keys() == {
        "loss",
        "surrogate1",
        "surrogate2",
        "clip_ratio",
        "up_clip_ratio",
        "low_clip_ratio",
    }


def test_old_logprobs_change_loss_and_gradient_and_get_none_themselves() -> None:
    """New -1, old -1 - log 1.1: ratio 1.1. Old -1 - log 1.2: ratio 1.2. Both inside the clip."""
    logprobs = torch.full((1, 1), -1.0, dtype=torch.float64, requires_grad=True)
    for ratio in (1.1, 1.2):
        old = torch.full((1, 1), -1.0 - math.log(ratio), dtype=torch.float64, requires_grad=True)
        loss = DAPOLoss()(logprobs, old, torch.tensor([1.0], dtype=torch.float64))["loss"]
        assert loss.item() == pytest.approx(-ratio)
        (gradient,) = torch.autograd.grad(loss, logprobs, retain_graph=True)
        assert gradient.item() == pytest.approx(-ratio)
        assert torch.autograd.grad(loss, old, allow_unused=True) == (None,)


def test_loss_of_forced_old_probabilities_is_clipped_b14() -> None:
    """B14: ratio 1.5, A = +1 -> -1.28 and no gradient."""
    result, gradient = run([[1.5]], [1.0])
    close(result["loss"], -1.28)
    close(gradient, [[0.0]])


@pytest.mark.parametrize(
    "advantages",
    [
        pytest.param([1.0, -1.0], id="one per row"),
        pytest.param([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]], id="one per token"),
    ],
)
def test_advantages_per_row_and_per_token_mean_the_same(advantages: list[float] | list[list[float]]) -> None:
    """Row losses -3 x 1 and + 3 x 1.1: (-3 + 3.3)/6 = .05."""
    result, _ = run([[1.0] * 3, [1.1] * 3], advantages)
    close(result["loss"], 0.05)


def test_advantages_per_token_may_differ_within_a_row() -> None:
    """-(1 x 2 + 1 x -4 + 1 x 6)/3."""
    result, gradient = run([[1.0, 1.0, 1.0]], [[2.0, -4.0, 6.0]])
    close(result["loss"], -4 / 3)
    close(gradient, [[-2 / 3, 4 / 3, -2.0]])


def test_a_square_batch_takes_one_advantage_per_row() -> None:
    """(2, 2) with (2,): the first row has +1, not the first column."""
    _, gradient = run([[1.0, 1.0], [1.0, 1.0]], [1.0, -1.0])
    close(gradient, [[-0.25, -0.25], [0.25, 0.25]])


def test_token_level_loss_weighs_tokens_sample_level_loss_weighs_answers_b07() -> None:
    """B07: A -1 with ratio 1 on 4 tokens, A -3 on 2: (4 + 6)/6 or (1 + 3)/2; a fully masked row changes neither."""
    ratios, advantages = [[1.0] * 4] * 3, [-1.0, -3.0, -99.0]
    mask = [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]]
    by_token, token_gradient = run(ratios, advantages, mask, use_token_level_loss=True)
    by_answer, answer_gradient = run(ratios, advantages, mask, use_token_level_loss=False)
    close(by_token["loss"], 10 / 6)
    close(by_answer["loss"], 2.0)
    close(token_gradient, [[1 / 6] * 4, [0.5, 0.5, 0.0, 0.0], [0.0] * 4])
    close(answer_gradient, [[1 / 8] * 4, [0.75, 0.75, 0.0, 0.0], [0.0] * 4])


@pytest.mark.parametrize("token_level", [True, False])
def test_what_lies_outside_the_mask_is_not_touched(token_level: bool) -> None:
    """NaN and infinity outside reach neither the loss, nor the surrogates, nor any gradient."""
    logprobs = torch.tensor([[0.0, NAN], [-math.inf, 0.0]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[0.0, 1.0], [NAN, 0.0]], dtype=torch.float64)
    advantages = torch.tensor([[1.0, NAN], [NAN, -3.0]], dtype=torch.float64)
    result = DAPOLoss(DAPOConfig(use_token_level_loss=token_level))(
        logprobs, old, advantages, torch.tensor([[1, 0], [0, 1]])
    )
    result["loss"].backward()
    close(result["loss"], 1.0)  # (-1 + 3)/2
    assert result["surrogate1"].item() == pytest.approx(-1.0)  # (1 - 3) / 2
    assert logprobs.grad is not None
    close(logprobs.grad, [[-0.5, 0.0], [0.0, 1.5]])


@pytest.mark.parametrize("place", ["logprobs", "old_logprobs", "advantages"])
def test_a_nan_inside_the_mask_surfaces(place: str) -> None:
    given = {name: torch.zeros(1, 2, dtype=torch.float64) for name in ("logprobs", "old_logprobs", "advantages")}
    given[place][0, 1] = NAN
    loss = DAPOLoss()(**given, mask=torch.tensor([[1, 1]]))["loss"]
    assert loss.isnan()


@pytest.mark.parametrize("token_level", [True, False])
@pytest.mark.parametrize("mask_type", [torch.bool, torch.int64, torch.float32])
def test_a_batch_of_padding_only_has_loss_zero_and_zero_gradients_b05(
    token_level: bool, mask_type: torch.dtype
) -> None:
    """B05: 0 / max(0, 1), and not NaN even where the padding is NaN."""
    logprobs = torch.full((2, 3), NAN, requires_grad=True)
    result = DAPOLoss(DAPOConfig(use_token_level_loss=token_level))(
        logprobs, torch.zeros(2, 3), torch.tensor([1.0, -1.0]), torch.zeros(2, 3, dtype=mask_type)
    )
    result["loss"].backward()
    assert result["loss"].item() == 0.0
    assert result["clip_ratio"].item() == 0.0
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[0.0] * 3] * 2


def test_padding_never_counts_as_clipped_b91() -> None:
    """B91: of the two tokens inside the mask one is clipped above; the clipped one outside is nobody's."""
    result, _ = run([[1.5, 1.0, 9.0]], [1.0], [[1, 1, 0]])
    close(result["up_clip_ratio"], 0.5)


def test_eps_high_moves_the_upper_bound() -> None:
    assert [round(run([[1.5]], [1.0], eps_high=eps)[0]["loss"].item(), 9) for eps in (0.28, 0.4, 0.6)] == [
        -1.28,
        -1.4,
        -1.5,
    ]


def test_eps_low_moves_the_lower_bound() -> None:
    assert [round(run([[0.5]], [-1.0], eps_low=eps, eps_high=0.6)[0]["loss"].item(), 9) for eps in (0.2, 0.3, 0.6)] == [
        0.8,
        0.7,
        0.5,
    ]


def test_truncated_answers_leave_numerator_and_denominator_when_asked() -> None:
    """max_length 3: the first row has reached it. A [-1 | -4], ratio 1: (3 x 1 + 2 x 4)/5, or 8/2 without it."""
    ratios, mask = [[1.0] * 3, [1.0] * 3], [[1, 1, 1], [1, 1, 0]]
    kept, _ = run(ratios, [-1.0, -4.0], mask, max_length=3, cache_length=0)
    left_out, gradient = run(ratios, [-1.0, -4.0], mask, max_length=3, cache_length=0, mask_overlong_truncated=True)
    close(kept["loss"], 11 / 5)
    close(left_out["loss"], 4.0)
    close(gradient, [[0.0] * 3, [2.0, 2.0, 0.0]])


def test_max_length_decides_what_is_truncated() -> None:
    """Three tokens are the limit of 3, and short of a limit of 4."""
    options: dict[str, Any] = {"cache_length": 0, "mask_overlong_truncated": True}
    close(run([[1.0] * 3], [-1.0], max_length=3, **options)[0]["loss"], 0.0)
    close(run([[1.0] * 3], [-1.0], max_length=4, **options)[0]["loss"], 1.0)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("old_logprobs", {"old_logprobs": (1, 3)}),
        ("mask", {"mask": (2, 1)}),
        ("advantages", {"advantages": (1,)}),
        ("advantages", {"advantages": (2, 1)}),
        ("advantages", {"advantages": (3,)}),
        ("logprobs", {"logprobs": (3,), "old_logprobs": (3,), "advantages": (3,)}),
    ],
)
def test_a_shape_that_would_only_broadcast_is_refused_by_name(name: str, shapes: dict[str, tuple[int, ...]]) -> None:
    right = {"logprobs": (2, 3), "old_logprobs": (2, 3), "advantages": (2,)}
    with pytest.raises(ValueError, match=name):
        DAPOLoss()(**{key: torch.zeros(shape) for key, shape in {**right, **shapes}.items()})


@pytest.mark.parametrize("token_level", [True, False])
def test_gradient_equals_central_finite_differences(token_level: bool) -> None:
    """Float64, with a mask and clipped tokens; no ratio lies within the step of a bound."""
    ratios, advantages, mask = [[0.7, 1.1, 1.5], [0.9, 1.4, 1.0]], [1.0, -0.5], [[1, 1, 1], [1, 1, 0]]
    _, gradient = run(ratios, advantages, mask, use_token_level_loss=token_level)
    step = 1e-6
    for row in range(2):
        for place in range(3):
            values = []
            for sign in (1, -1):
                moved = [list(line) for line in ratios]
                moved[row][place] *= math.exp(sign * step)
                values.append(run(moved, advantages, mask, use_token_level_loss=token_level)[0]["loss"].item())
            assert gradient[row, place].item() == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-8)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("which", ["new", "old"])
def test_what_is_not_finite_inside_the_mask_makes_a_loss_that_is_not(value: float, which: str) -> None:
    """Bounded to +-20, an infinite log ratio would pass for a large one."""
    logprobs = {"new": torch.full((2, 2), -1.0), "old": torch.full((2, 2), -1.0)}
    logprobs[which][0, 1] = value
    result = DAPOLoss()(logprobs["new"], logprobs["old"], torch.tensor([1.0, -1.0]))
    assert not result["loss"].isfinite()


def test_advantages_take_rows_of_any_layout_and_refuse_parts_of_groups() -> None:
    """Every other entry of 1 9 0 9 1 9 1 9: groups 1 0 and 1 1."""
    config = DAPOConfig(group_size=2)
    rewards = torch.tensor([1.0, 9.0, 0.0, 9.0, 1.0, 9.0, 1.0, 9.0])[::2]
    assert not rewards.is_contiguous()
    assert config.advantages(rewards).tolist() == pytest.approx([1.0, -1.0, 0.0, 0.0])
    for shape in ((3,), (2, 2)):
        with pytest.raises(ValueError, match="with B whole groups of group_size 2, got "):
            config.advantages(torch.ones(shape))
