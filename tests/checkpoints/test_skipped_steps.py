"""A loss or gradient that is not finite: the step is skipped, counted and named; too many in a row end the run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dapo.algorithms.settings import Algorithm
from dapo.errors import TrainingError
from dapo.models.language_model import LanguageModel
from dapo.training.batch import Answer
from dapo.training.settings import TrainingSettings
from dapo.training.update import Trainer


@pytest.fixture
def make_trainer(
    load_tiny: Callable[..., LanguageModel], algorithm: Callable[..., Algorithm]
) -> Callable[[int], Trainer]:
    def make(max_skipped: int) -> Trainer:
        settings = TrainingSettings(mini_bs=1, lr=1e-2, max_skipped_updates=max_skipped)
        return Trainer(load_tiny(), settings, algorithm(), temperature=1.0, max_new_tokens=8)

    return make


GOOD, BAD = 1.0, math.nan
"""Advantages: a NaN in the loss comes from nowhere else so simply."""


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in trainer.model.module.parameters()]


def test_a_skipped_step_leaves_no_trace_in_weights_optimizer_and_statistics(
    make_trainer: Callable[[int], Trainer], answer: Callable[..., Answer]
) -> None:
    """Three steps of one answer, the middle one bad, equal the two good ones alone."""
    good = [answer(0, (3, 4), (5, 6), GOOD, index=10), answer(2, (3, 5), (7,), GOOD, index=12)]
    bad = answer(1, (4, 4), (6, 6, 6), BAD, index=11)
    alone, among = make_trainer(3), make_trainer(3)
    expected = alone.update(good, 1e-2)
    stats = among.update([good[0], bad, good[1]], 1e-2)
    assert all(torch.equal(one, two) for one, two in zip(weights(alone), weights(among), strict=True))
    assert (stats.loss, stats.grad_norm, stats.tokens, stats.entropy) == (
        expected.loss,
        expected.grad_norm,
        3,
        expected.entropy,
    )
    assert (stats.optimizer_steps, among.skipped_in_a_row) == (2, 0)
    (skipped,) = stats.skipped
    assert skipped.rows == (11,)
    assert str(skipped) == "loss nan, gradient norm nan, prompts of rows 11"


def test_an_update_of_skipped_steps_only_has_no_statistics(
    make_trainer: Callable[[int], Trainer], answer: Callable[..., Answer]
) -> None:
    trainer = make_trainer(3)
    before = weights(trainer)
    stats = trainer.update([answer(0, (3,), (5,), BAD)], 1e-2)
    assert math.isnan(stats.loss)
    assert math.isnan(stats.ratio_mean)
    assert (stats.optimizer_steps, stats.tokens, trainer.skipped_in_a_row) == (0, 0, 1)
    assert all(torch.equal(one, two) for one, two in zip(before, weights(trainer), strict=True))


@pytest.mark.parametrize("limit", [1, 2])
def test_max_skipped_updates_in_a_row_end_the_run_and_good_ones_between_do_not_count(
    make_trainer: Callable[[int], Trainer], answer: Callable[..., Answer], limit: int
) -> None:
    trainer = make_trainer(limit)
    good, bad = answer(0, (3,), (5,), GOOD), answer(1, (4,), (6,), BAD, index=7)
    if limit == 2:
        trainer.update([bad, good, bad, good], 1e-2)
        trainer.update([bad], 1e-2)
    with pytest.raises(TrainingError, match=f"{limit} optimizer steps in a row were not finite.*prompts of rows 7"):
        trainer.update([bad], 1e-2)


def test_a_run_counts_and_names_skipped_steps_and_ends_after_too_many(
    tiny_runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both optimizer steps of every update are bad: 2 are skipped in update 1, the third in a row ends update 2."""
    from dapo.training import update

    real = update.policy_loss_sum

    def not_finite(*arguments: Any) -> Any:
        loss, losses = real(*arguments)
        return loss * math.nan, losses

    monkeypatch.setattr(update, "policy_loss_sum", not_finite)
    with pytest.raises(TrainingError, match="3 optimizer steps in a row"):
        tiny_runs.start("run", save_interval=1)
    assert tiny_runs.said.count("an optimizer step of update 1 is skipped: loss nan") == 2
    run = tiny_runs.root / "run"
    (line,) = [json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines()]
    assert (line["skipped_updates"], line["loss"], line["optimizer_steps"]) == (2, None, 0)
    state = json.loads((run / "checkpoints/step_000001/state.json").read_text())
    assert (state["skipped_updates"], state["skipped_in_a_row"]) == (2, 2)
    monkeypatch.undo()
    tiny_runs.resume("run")
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["step"], last["skipped_updates"]) == (6, 2)
