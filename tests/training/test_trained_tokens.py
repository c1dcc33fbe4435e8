"""What the loss saw of each answer: log-probabilities at its own step, and the tokens that the clip held."""

from __future__ import annotations

import math

import pytest
import torch

UNIFORM = -math.log(64)  # log-probability of any token under a table of zeros, V = 64


@pytest.mark.parametrize("cut", [{"mini_bs": 6}, {"mini_bs": 2}, {"mini_bs": 4, "max_tokens_per_pass": 9}])
def test_each_answer_s_tokens_come_back_in_the_order_given(load_tiny, make_trainer, batch, fresh_logprobs, cut):
    """Exactly float32, which a plain forward pass reproduces to 2e-6."""
    model = load_tiny()
    stats = make_trainer(model, **cut).update(batch, 0.0)
    assert len(stats.trained) == len(batch)
    for one, tokens in zip(batch, stats.trained, strict=True):
        with torch.no_grad():
            fresh = fresh_logprobs(model, one.prompt.tokens, one.completion.tokens)
        assert tokens.logprobs == pytest.approx(fresh.tolist(), abs=2e-6)
        assert torch.tensor(tokens.logprobs).tolist() == list(tokens.logprobs)


def test_an_answer_is_seen_under_the_weights_of_its_own_step(load_tiny, make_trainer, batch, fresh_logprobs):
    """Trained alone first, then again: the second time under what the first step made of the weights."""
    one = batch[0]
    model = load_tiny()
    make_trainer(model, mini_bs=1).update([one], 1e-2)
    with torch.no_grad():
        moved = fresh_logprobs(model, one.prompt.tokens, one.completion.tokens).tolist()
        still = fresh_logprobs(load_tiny(), one.prompt.tokens, one.completion.tokens).tolist()
    first, second = make_trainer(load_tiny(), mini_bs=1).update([one, one], 1e-2).trained
    assert first.logprobs == pytest.approx(still, abs=2e-6)
    assert second.logprobs == pytest.approx(moved, abs=1e-5)
    assert abs(moved[0] - still[0]) > 1e-3


def test_clipped_tokens_are_named_by_their_place_in_the_answer(make_trainer, uniform, answer):
    """Ratios 1, 1.5, 0.5, 1.3 within [0.8, 1.28]: a good answer is held at places 1 and 3, a bad one at place 2."""
    old = [UNIFORM - math.log(ratio) for ratio in (1.0, 1.5, 0.5, 1.3)]
    answers = [answer(0, (5, 6), (7,) * 4, advantage, old) for advantage in (1.0, -1.0)]
    stats = make_trainer(uniform).update(answers, 0.0)
    good, bad = stats.trained
    assert (good.clipped_upper, good.clipped_lower) == ((1, 3), ())
    assert (bad.clipped_upper, bad.clipped_lower) == ((), (2,))
    # Drawn with 1/64 / 1.5 = 0.0104167 and 1/64 / 1.3 = 0.0120192: mean 0.0112179
    assert stats.up_clipped_prob == pytest.approx(0.0112179, abs=1e-6)


@pytest.mark.parametrize(("ratio", "advantage"), [(1.0, 1.0), (0.5, -1.0)])
def test_without_a_token_clipped_above_there_is_no_mean_probability_of_them(
    make_trainer, uniform, at_ratio, ratio, advantage
):
    assert make_trainer(uniform).update([at_ratio(0, 2, advantage, ratio)], 0.0).up_clipped_prob is None


def test_answers_of_a_skipped_step_were_not_seen(make_trainer, uniform, answer, at_ratio):
    """The second of three steps has no finite loss; its clipped tokens do not count either."""
    broken = answer(1, (5, 6), (7, 8), 1.0, (math.nan, UNIFORM - 1.0))
    stats = make_trainer(uniform, mini_bs=1).update([at_ratio(0, 1, 1.0), broken, at_ratio(2, 3, 1.0)], 0.0)
    assert [tokens and len(tokens.logprobs) for tokens in stats.trained] == [1, None, 3]
    assert stats.up_clipped_prob is None


def test_a_rank_knows_its_own_answers_alone(make_trainer, uniform, at_ratio):
    """The second of two ranks gets the last of a pass's two answers, and of the three in a longer one the last."""
    trainer = make_trainer(uniform, mini_bs=3)
    trainer.ranks.rank, trainer.ranks.size = 1, 2
    stats = trainer.update([at_ratio(number, number + 1, 1.0) for number in range(5)], 0.0)
    assert [tokens and len(tokens.logprobs) for tokens in stats.trained] == [None, None, 3, None, 5]
