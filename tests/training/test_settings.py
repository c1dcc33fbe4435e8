"""The training settings: the schedule by hand, and what is refused."""

from __future__ import annotations

import pytest

from dapo.errors import ConfigError
from dapo.training.settings import TrainingSettings, learning_rate


def rates(steps, total=None, **settings):
    return [learning_rate(TrainingSettings(lr=1.0, **settings), step, total) for step in steps]


def test_the_rate_is_constant_by_default():
    assert rates([0, 7, 1000]) == [1.0, 1.0, 1.0]
    assert TrainingSettings().lr == 1e-6


def test_warm_up_rises_in_a_line_and_wastes_no_update_at_zero():
    """3 warm-up updates: 1/4, 2/4, 3/4, then the full rate."""
    assert rates([0, 1, 2, 3, 4], lr_warmup_steps=3) == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_cosine_falls_from_the_end_of_the_warm_up_to_min_lr_at_max_steps():
    """3 of 13 updates warm up; the other 10: cos 0 = 1, cos 90 = 0, cos 60 = 0.5 lies at a third, and so on.

    Half way the rate is the middle of 1 and min_lr; at the end, and after it, min_lr.
    """
    cosine = {"lr_schedule": "cosine", "lr_warmup_steps": 3}
    assert rates([2, 3, 8, 13, 20], 13, **cosine) == pytest.approx([0.75, 1.0, 0.5, 0.0, 0.0])
    assert rates([3, 8, 13], 13, min_lr=0.2, **cosine) == pytest.approx([1.0, 0.6, 0.2])
    assert rates([3], 9, lr_schedule="cosine") == pytest.approx([0.75])  # a third: (1 + cos 60) / 2


def test_cosine_without_an_end_is_refused():
    with pytest.raises(ConfigError, match="lr_schedule is cosine but max_steps is not set"):
        rates([0], None, lr_schedule="cosine")


@pytest.mark.parametrize(("answers", "steps"), [(1, 1), (4, 1), (6, 1), (7, 2), (12, 2), (13, 3)])
def test_a_batch_makes_as_many_steps_as_it_has_runs_of_mini_bs_times_accumulation(answers, steps):
    """2 x 3 = 6 answers a step, the last one smaller."""
    assert TrainingSettings(mini_bs=2, gradient_accumulation_steps=3).optimizer_steps(answers) == steps


@pytest.mark.parametrize(
    "setting",
    [
        {"mini_bs": 0},
        {"gradient_accumulation_steps": 0},
        {"max_tokens_per_pass": 0},
        {"max_skipped_updates": 0},
        {"lr": -1e-6},
        {"lr": float("nan")},
        {"lr": float("inf")},
        {"weight_decay": -0.1},
        {"lr_warmup_steps": -1},
        {"adam_beta1": 1.0},
        {"adam_beta2": -0.1},
        {"grad_clip_norm": 0.0},
        {"grad_clip_norm": float("nan")},
        {"min_lr": 1e-7},
        {"min_lr": 1e-5, "lr": 1e-6, "lr_schedule": "cosine"},
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(setting):
    with pytest.raises(ConfigError) as refused:
        TrainingSettings(**setting)
    name, value = next(iter(setting.items()))
    assert f"{name} is {value}" in refused.value.problem
    assert refused.value.fix
