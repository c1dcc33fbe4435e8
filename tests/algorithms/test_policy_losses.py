"""Clip-Higher token by token: r = exp(log ratio), loss = -min(r A, clip(r, 0.8, 1.28) A)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dapo.algorithms.losses import Clip, TokenLosses, policy_losses

CLIP_HIGHER = Clip(0.2, 0.28)


def losses_of(
    ratios: list[float], advantages: list[float], clip: Clip | None = CLIP_HIGHER
) -> tuple[TokenLosses, Tensor]:
    """Token losses of given ratios and advantages (float64), and d loss / d log ratio of each token."""
    log_ratio = torch.tensor(ratios, dtype=torch.float64).log().requires_grad_()
    losses = policy_losses(log_ratio, torch.tensor(advantages, dtype=torch.float64), clip)
    (gradient,) = torch.autograd.grad(losses.loss.sum(), log_ratio)
    return losses, gradient


def close(actual: Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=actual.dtype), rtol=1e-6, atol=1e-9)


# d(-r A)/d(log r) = -r A wherever the clip does not act, and 0 where it does.
@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "gradient"),
    [
        (+1.0, 0.50, -0.50, -0.50),  # fallen, good: min(0.5, 0.8), still learns
        (+1.0, 1.00, -1.00, -1.00),
        (+1.0, 1.25, -1.25, -1.25),  # risen within the upper bound
        (+1.0, 1.50, -1.28, 0.00),  # risen beyond it: held at 1.28
        (-1.0, 0.50, +0.80, 0.00),  # fallen, bad: held at 0.8
        (-1.0, 0.90, +0.90, +0.90),
        (-1.0, 1.00, +1.00, +1.00),
        (-1.0, 1.50, +1.50, +1.50),  # risen, bad: min(-1.5, -1.28), still unlearns
        (+2.0, 1.50, -2.56, 0.00),  # 2 x 1.28
        (-2.0, 0.50, +1.60, 0.00),  # 2 x 0.8
        (0.0, 0.50, 0.0, 0.0),
        (0.0, 1.00, 0.0, 0.0),
        (0.0, 1.50, 0.0, 0.0),
    ],
)
def test_each_sign_and_side_of_the_clip(advantage: float, ratio: float, loss: float, gradient: float) -> None:
    losses, slope = losses_of([ratio], [advantage])
    close(losses.loss, [loss])
    close(slope, [gradient])


def test_clip_high_decides_whether_a_risen_token_still_learns() -> None:
    """Ratio 1.25: inside the upper bound 1.28, outside the symmetric 1.2."""
    _, wide = losses_of([1.25], [1.0], Clip(0.2, 0.28))
    _, narrow = losses_of([1.25], [1.0], Clip(0.2, 0.2))
    close(wide, [-1.25])
    close(narrow, [0.0])


def test_clip_low_decides_whether_a_fallen_token_still_unlearns() -> None:
    """Ratio 0.75: outside the lower bound 0.8, inside 0.7."""
    _, narrow = losses_of([0.75], [-1.0], Clip(0.2, 0.28))
    _, wide = losses_of([0.75], [-1.0], Clip(0.3, 0.3))
    close(narrow, [0.0])
    close(wide, [0.75])


def test_a_ratio_at_the_very_bound_is_not_counted_as_clipped() -> None:
    """Bounds 0.5 and 1.5 and their logarithms' exponentials are exact in float64; r A = clip(r) A there."""
    high, low = torch.tensor([1.5, 0.5], dtype=torch.float64).log().exp().tolist()
    losses, _ = losses_of([1.5, 0.5], [1.0, -1.0], Clip(1.0 - low, high - 1.0))
    close(losses.loss, [-1.5, 0.5])
    assert not losses.clipped_upper.any()
    assert not losses.clipped_lower.any()


def test_clip_counts_and_losses_of_the_public_vector_b91() -> None:
    """B91: -min(r A, clip(r) A) for ratios [1.30, 1.25, .75, .70, 1.30]; 3 of 5 clipped, 1 above and 2 below."""
    losses, _ = losses_of([1.30, 1.25, 0.75, 0.70, 1.30], [1.0, 1.0, -1.0, -1.0, -1.0])
    close(losses.loss, [-1.28, -1.25, 0.80, 0.80, 1.30])
    assert losses.clipped_upper.tolist() == [True, False, False, False, False]
    assert losses.clipped_lower.tolist() == [False, False, True, True, False]


def test_the_clip_never_counts_where_it_changes_nothing() -> None:
    """A > 0 below the lower bound and A < 0 above the upper one keep their gradient, A = 0 has none to lose."""
    losses, _ = losses_of([0.5, 1.5, 0.5, 1.5], [1.0, -1.0, 0.0, 0.0])
    assert not (losses.clipped_upper | losses.clipped_lower).any()


def test_surrogates_are_reported_before_and_after_the_clip() -> None:
    losses, _ = losses_of([1.5, 0.5], [2.0, -1.0])
    close(losses.surrogate, [3.0, -0.5])
    close(losses.clipped_surrogate, [2.56, -0.8])
    close(losses.ratio, [1.5, 0.5])


def test_dual_clip_holds_the_loss_of_a_risen_bad_token() -> None:
    """B91: c = 10, ratio 12 -> loss 10; c = 3, ratio 4 -> 3. Held tokens have no gradient and count as lower."""
    losses, slope = losses_of([12.0, 9.0], [-1.0, -1.0], Clip(0.2, 0.28, dual=10.0))
    close(losses.loss, [10.0, 9.0])
    close(slope, [0.0, 9.0])
    assert losses.clipped_lower.tolist() == [True, False]
    losses, slope = losses_of([4.0, 4.0], [-1.0, -2.0], Clip(0.2, 0.28, dual=3.0))
    close(losses.loss, [3.0, 6.0])  # min(4 x |A|, 3 x |A|)
    close(slope, [0.0, 0.0])


def test_dual_clip_leaves_good_tokens_and_small_ratios_alone() -> None:
    with_dual, _ = losses_of([12.0, 0.5, 1.0], [1.0, -1.0, -1.0], Clip(0.2, 0.28, dual=3.0))
    close(with_dual.loss, [-1.28, 0.8, 1.0])
    assert with_dual.clipped_lower.tolist() == [False, True, False]
    assert with_dual.clipped_upper.tolist() == [True, False, False]


def test_without_dual_clip_a_bad_token_is_unbounded() -> None:
    losses, _ = losses_of([12.0], [-1.0])
    close(losses.loss, [12.0])


def test_without_a_clip_the_loss_is_the_plain_surrogate() -> None:
    losses, slope = losses_of([3.0, 0.1], [1.0, -1.0], clip=None)
    close(losses.loss, [-3.0, 0.1])
    close(slope, [-3.0, 0.1])
    assert not (losses.clipped_upper | losses.clipped_lower).any()


def test_forced_old_probability_is_clipped_with_zero_gradient_b14() -> None:
    """B14: old = new - log 1.5, A = +1 -> min(1.5, 1.28) = 1.28, and nothing more to gain."""
    new = torch.tensor([-2.0], requires_grad=True)
    old = torch.tensor([-2.0 - math.log(1.5)])
    loss = policy_losses(new - old, torch.tensor([1.0]), CLIP_HIGHER).loss.sum()
    loss.backward()
    assert loss.item() == pytest.approx(-1.28, abs=1e-6)
    assert new.grad is not None
    assert new.grad.item() == 0.0


@pytest.mark.parametrize("clip", [CLIP_HIGHER, None])
def test_a_log_ratio_of_100_stays_finite_b16(clip: Clip | None) -> None:
    """B16: exp(100) overflows float32; bounded at 20, the loss is exp(20) = 4.85165e8 and the gradient is finite."""
    log_ratio = torch.tensor([100.0], requires_grad=True)
    loss = policy_losses(log_ratio, torch.tensor([-1.0]), clip).loss.sum()
    loss.backward()
    assert loss.item() == pytest.approx(4.85165195e8, rel=1e-6)
    assert log_ratio.grad is not None
    assert log_ratio.grad.item() == 0.0


def test_a_log_ratio_of_minus_100_is_bounded_at_minus_20() -> None:
    ratio = policy_losses(torch.tensor([-100.0]), torch.tensor([1.0]), None).ratio
    assert ratio.item() == pytest.approx(2.0611536e-9, rel=1e-6)  # exp(-20)


def test_a_nan_among_the_tokens_surfaces() -> None:
    losses = policy_losses(torch.tensor([0.0, math.nan]), torch.tensor([1.0, 0.0]), CLIP_HIGHER)
    assert losses.loss[0].item() == -1.0
    assert math.isnan(losses.loss[1].item())
