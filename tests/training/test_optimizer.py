"""AdamW by hand, each setting acting, and small updates that bfloat16 weights would round away."""

from __future__ import annotations

import math

import pytest
import torch

from dapo.training.optimizer import MasterAdamW, global_norm
from dapo.training.ranks import Ranks
from dapo.training.settings import TrainingSettings

ALONE = Ranks()


def optimizer(parameter, **settings):
    return MasterAdamW([parameter], TrainingSettings(**{"weight_decay": 0.0, "grad_clip_norm": 1e9, **settings}))


def steps(gradients, *, lr=0.1, start=0.0, **settings):
    """A single weight after a step on each gradient, and the norms that were returned."""
    parameter = torch.nn.Parameter(torch.tensor([start]))
    adamw = optimizer(parameter, **settings)
    norms = []
    for gradient in gradients:
        parameter.grad = torch.tensor([gradient])
        adamw.collect()
        norms.append(adamw.step(lr, ALONE))
    return parameter.item(), norms


@pytest.mark.parametrize(
    ("betas", "second"),
    [({}, 0.917777), ({"adam_beta1": 0.0}, 1.341371), ({"adam_beta2": 0.0}, 0.684211)],
)
def test_two_steps_are_adam_s_by_hand(betas, second):
    """Gradients 1, then 3. The first step is lr x 1. The second, with 0.9 and 0.999:

    mean 0.39 / 0.19 = 2.052632, squares 0.009999 / 0.001999 = 5.002001, root 2.236516, ratio 0.917777; without
    beta1 the mean is 3: 1.341371; without beta2 the root is 3: 0.684211.
    """
    weight, norms = steps([1.0, 3.0], **betas)
    assert weight == pytest.approx(-0.1 * (1 + second), abs=1e-6)
    assert norms == [1.0, 3.0]


def test_the_rate_of_each_step_is_the_one_given():
    parameter = torch.nn.Parameter(torch.tensor([0.0]))
    adamw = optimizer(parameter)
    for lr in (0.1, 0.0, 0.02):
        parameter.grad = torch.tensor([1.0])
        adamw.step(lr, ALONE)
    assert parameter.item() == pytest.approx(-0.12, abs=1e-6)


def test_weight_decay_shrinks_a_weight_without_gradient():
    """2 x (1 - 0.1 x 0.5) = 1.9"""
    assert steps([0.0], start=2.0, weight_decay=0.5)[0] == pytest.approx(1.9, abs=1e-6)
    assert steps([0.0], start=2.0)[0] == 2.0


def test_gradients_are_scaled_to_the_clip_s_global_norm_and_the_norm_before_is_returned():
    """(3, 4) has norm 5; clipped to 1e-8 it is (0.6, 0.8) x 1e-8, where Adam's eps of 1e-8 halves the step or so.

    First step: g / (g + eps) = 0.6 / 1.6 = 0.375 and 0.8 / 1.8 = 0.4444, times lr 0.1; unclipped it is 1.
    """
    pair = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    for clip, moved in ((1e-8, (-0.0375, -0.04444)), (10.0, (-0.1, -0.1))):
        with torch.no_grad():
            for parameter in pair:
                parameter.zero_()
        adamw = MasterAdamW(pair, TrainingSettings(weight_decay=0.0, grad_clip_norm=clip))
        for parameter, gradient in zip(pair, (3.0, 4.0), strict=True):
            parameter.grad = torch.tensor([gradient])
        assert adamw.step(0.1, ALONE) == pytest.approx(5.0)
        assert [parameter.item() for parameter in pair] == pytest.approx(moved, rel=1e-3)


def test_the_norm_of_many_numbers_is_exact():
    """4,000,001 times 0.1 and one 3000 apart: sqrt(40000.01 + 9e6) = 3006.65926; float32 adds up to 3004 or so."""
    tensors = [torch.full((4_000_001,), 0.1), torch.tensor([[3000.0]])]
    assert global_norm(tensors) == pytest.approx(3006.65926, rel=1e-7)


def test_a_norm_that_is_not_finite_is_given_back_as_it_is():
    assert math.isnan(global_norm([torch.ones(2000), torch.tensor([math.nan])]))
    assert global_norm([torch.tensor([math.inf])]) == math.inf


def test_steps_too_small_for_bfloat16_add_up_in_the_masters():
    """From 1.0, 100 steps of 1e-4 come to 0.99, which is 0.98828125 in bfloat16 (253 / 256).

    One alone is lost: below 1 bfloat16 has steps of 1/256, so that 1 - 1e-4 is 1 again.
    """
    naive = torch.tensor([1.0], dtype=torch.bfloat16)
    parameter = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.bfloat16))
    adamw = optimizer(parameter)
    for _ in range(100):
        naive -= 1e-4
        parameter.grad = torch.ones_like(parameter)
        adamw.collect()
        adamw.step(1e-4, ALONE)
    assert naive.item() == 1.0
    assert adamw.masters[0].item() == pytest.approx(0.99, abs=1e-5)
    assert parameter.item() == 0.98828125
    assert parameter.dtype == torch.bfloat16


def test_gradients_of_several_passes_add_up_in_float32():
    """1 + 2^-10 has no bfloat16 form."""
    parameter = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.bfloat16))
    adamw = optimizer(parameter)
    for gradient in (1.0, 2.0**-10):
        parameter.grad = torch.tensor([gradient], dtype=torch.bfloat16)
        adamw.collect()
    assert parameter.grad is None
    assert adamw.masters[0].grad.item() == 1 + 2.0**-10


def test_gradients_do_not_carry_over_to_the_next_step():
    """The second step has no gradient: Adam's mean decays to 0.09 / 0.19, its squares to 0.000999 / 0.001999."""
    parameter = torch.nn.Parameter(torch.tensor([0.0]))
    adamw = optimizer(parameter)
    parameter.grad = torch.tensor([1.0])
    adamw.step(0.1, ALONE)
    adamw.step(0.1, ALONE)
    second = (0.09 / 0.19) / math.sqrt(0.000999 / 0.001999)
    assert parameter.item() == pytest.approx(-0.1 * (1 + second), abs=1e-6)


def test_frozen_parameters_stay():
    moving, frozen = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1), requires_grad=False)
    adamw = MasterAdamW([moving, frozen], TrainingSettings(weight_decay=0.5))
    moving.grad = torch.ones(1)
    adamw.step(0.1, ALONE)
    assert frozen.item() == 1.0
    assert moving.item() < 1.0
