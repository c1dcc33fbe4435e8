"""The function that the trainer calls: each algorithm's loss over flat tokens, as a sum."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dapo.algorithms.losses import sequence_log_ratio, token_weight
from dapo.algorithms.policy_loss import ResponseTokens, policy_loss_sum
from dapo.algorithms.settings import Algorithm, AlgorithmSettings

LENGTHS = [3, 2]
ADVANTAGES = [1.0, -0.5]


def tokens_of(old: Tensor, settings: Algorithm) -> ResponseTokens:
    """Two answers, of 3 and 2 tokens, with advantages 1 and -0.5; horizon 4."""
    rows = [number for number, length in enumerate(LENGTHS) for _ in range(length)]
    weights = [token_weight(LENGTHS[row], settings.aggregation, 4) for row in rows]
    return ResponseTokens(
        old_logp=old,
        advantage=torch.tensor([ADVANTAGES[row] for row in rows], dtype=old.dtype),
        weight=torch.tensor(weights, dtype=old.dtype),
        sequence=torch.tensor(rows),
        answers=2,
    )


def choose(algo: str, **changes: Any) -> Algorithm:
    return Algorithm.of(AlgorithmSettings(algo=algo, **changes))


def sum_and_gradient(settings: Algorithm, new: list[float], old: list[float]) -> tuple[float, list[float]]:
    logp = torch.tensor(new, dtype=torch.float64, requires_grad=True)
    loss, _ = policy_loss_sum(settings, logp, tokens_of(torch.tensor(old, dtype=torch.float64), settings))
    (gradient,) = torch.autograd.grad(loss, logp)
    return loss.item(), gradient.tolist()


OLD = [-1.0, -1.5, -2.0, -0.5, -0.7]
NEW = [-1.1, -1.4, -1.7, -0.6, -0.6]


def test_token_ratio_is_new_over_old_by_hand() -> None:
    """Log ratios [-.1, .1, .3 | -.1, .1], A [1 | -.5], bounds [.8, 1.28]; exp(.3) = 1.35 is clipped.

    -(e^-.1 + e^.1 + 1.28) + .5 (e^-.1 + e^.1) = -1.28 - .5 (e^-.1 + e^.1) = -2.28500.
    """
    loss, gradient = sum_and_gradient(choose("dapo"), NEW, OLD)
    fallen, risen = math.exp(-0.1), math.exp(0.1)
    assert loss == pytest.approx(-1.28 - 0.5 * (fallen + risen), abs=1e-12)
    assert gradient == pytest.approx([-fallen, -risen, 0.0, 0.5 * fallen, 0.5 * risen], abs=1e-12)


def test_gspo_gives_every_token_the_mean_log_ratio_of_its_answer() -> None:
    """Log ratios [-.1, .1, .3 | -.1, .1]: means .1 and 0, so s = [e^.1, e^.1, e^.1 | 1, 1]."""
    log_ratio = torch.tensor(NEW, dtype=torch.float64) - torch.tensor(OLD, dtype=torch.float64)
    means = sequence_log_ratio(log_ratio, torch.tensor([0, 0, 0, 1, 1]), 2)
    assert means.tolist() == pytest.approx([0.1, 0.1, 0.1, 0.0, 0.0], abs=1e-12)


def test_gspo_clips_whole_answers() -> None:
    """Bounds 1 +- .05, means .1 and 0: answer 0 (A 1, s e^.1 = 1.105) is held at 1.05, answer 1 (A -.5) is not.

    Weights 1/3 and 1/2 make -1.05 + .5 x 1 = -.55; each token of answer 1 pulls with .5/2 = .25.
    """
    settings = choose("gspo", ratio="rollout", clip_eps_low=0.05, clip_eps_high=0.05)
    loss, gradient = sum_and_gradient(settings, NEW, OLD)
    assert loss == pytest.approx(-0.55, abs=1e-12)
    assert gradient == pytest.approx([0.0, 0.0, 0.0, 0.25, 0.25], abs=1e-12)


def test_an_answer_without_tokens_does_not_disturb_the_others() -> None:
    means = sequence_log_ratio(torch.tensor([0.2, 0.4]), torch.tensor([0, 2]), 3)
    assert means.tolist() == pytest.approx([0.2, 0.4])


@pytest.mark.parametrize("algo", ["grpo", "gspo", "dr_grpo"])
def test_on_policy_surrogate_has_value_one_and_a_gradient(algo: str) -> None:
    """Ratio 1 everywhere: each answer adds -A x its weight, and each token pulls by -A x its weight."""
    settings = choose(algo)
    logp = torch.tensor(NEW, requires_grad=True)
    tokens = tokens_of(torch.tensor(OLD), settings)
    loss, losses = policy_loss_sum(settings, logp, tokens)
    (gradient,) = torch.autograd.grad(loss, logp)
    assert losses.ratio.tolist() == [1.0] * 5
    # grpo, gspo: weights 1/3 and 1/2. dr_grpo: 1/4 each.
    weights = [1 / 3] * 3 + [1 / 2] * 2 if algo != "dr_grpo" else [1 / 4] * 5
    pull = [-advantage * weight for advantage, weight in zip([1.0] * 3 + [-0.5] * 2, weights, strict=True)]
    assert gradient.tolist() == pytest.approx(pull, abs=1e-6)
    assert loss.item() == pytest.approx(sum(pull), abs=1e-6)


@pytest.mark.parametrize("algo", ["dapo", "grpo", "gspo", "dr_grpo"])
def test_under_the_rollout_ratio_old_probabilities_change_loss_and_gradient(algo: str) -> None:
    widths = {} if algo == "dapo" else {"clip_eps_low": 0.2, "clip_eps_high": 0.2}
    settings = choose(algo, ratio="rollout", **widths)
    # Answer 1's first token was likelier by 0.05 when it was written.
    changed = [*OLD[:3], OLD[3] + 0.05, OLD[4]]
    before, after = sum_and_gradient(settings, NEW, OLD), sum_and_gradient(settings, NEW, changed)
    assert abs(before[0] - after[0]) > 1e-3
    assert max(abs(a - b) for a, b in zip(before[1], after[1], strict=True)) > 1e-3


@pytest.mark.parametrize("algo", ["grpo", "gspo", "dr_grpo"])
def test_under_the_on_policy_ratio_old_probabilities_change_nothing(algo: str) -> None:
    assert sum_and_gradient(choose(algo), NEW, OLD) == sum_and_gradient(choose(algo), NEW, [-9.0] * 5)


def test_old_probabilities_never_get_a_gradient_of_their_own_policy() -> None:
    """The on-policy ratio holds the present policy fixed in the denominator: d(-A exp(x - sg x))/dx = -A."""
    logp = torch.tensor(NEW, requires_grad=True)
    settings = choose("dr_grpo", loss_aggregation="token-mean")
    loss, _ = policy_loss_sum(settings, logp, tokens_of(torch.tensor(OLD), settings))
    (gradient,) = torch.autograd.grad(loss, logp)
    assert gradient.tolist() == [-1.0, -1.0, -1.0, 0.5, 0.5]


@pytest.mark.parametrize("algo", ["dapo", "grpo", "gspo", "dr_grpo"])
def test_gradient_equals_central_finite_differences(algo: str) -> None:
    """Float64, real ratios; the points keep more than the step's distance from every kink of the clip."""
    widths = {} if algo == "dapo" else {"clip_eps_low": 0.2, "clip_eps_high": 0.28}
    settings = choose(algo, ratio="rollout", **widths)
    _, gradient = sum_and_gradient(settings, NEW, OLD)
    step = 1e-6
    for place in range(5):
        up, down = list(NEW), list(NEW)
        up[place] += step
        down[place] -= step
        slope = (sum_and_gradient(settings, up, OLD)[0] - sum_and_gradient(settings, down, OLD)[0]) / (2 * step)
        assert gradient[place] == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("algo", ["grpo", "gspo", "dr_grpo"])
def test_on_policy_gradient_equals_the_real_one_where_nothing_has_moved(algo: str) -> None:
    """The surrogate's value is constant, so differences cannot see it; at old = new the real ratio can."""
    real = choose(algo, ratio="rollout", clip_eps_low=0.2, clip_eps_high=0.2)
    assert sum_and_gradient(choose(algo), NEW, NEW)[1] == pytest.approx(sum_and_gradient(real, NEW, NEW)[1])


def test_the_sum_is_not_divided_by_anything() -> None:
    """Old = new: every ratio 1, so the token-level sum is -(3 x 1 - 2 x .5) = -2, whatever the number of tokens."""
    assert sum_and_gradient(choose("dapo"), NEW, NEW)[0] == pytest.approx(-2.0)


def test_dual_clip_reaches_the_loss() -> None:
    """Answer 1 (A -.5) risen by e^2 = 7.39 a token: .5 x 7.39 each without, .5 x 3 each with c = 3."""
    new = [*NEW[:3], OLD[3] + 2.0, OLD[4] + 2.0]
    without, _ = sum_and_gradient(choose("dapo"), new, OLD)
    held, _ = sum_and_gradient(choose("dapo", clip_ratio_c=3.0), new, OLD)
    assert without - held == pytest.approx(math.exp(2.0) - 3.0)
