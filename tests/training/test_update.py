"""One update: literal losses, the same weights however it is cut into passes, and metrics weighted by tokens."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors.torch import load_file

from dapo.algorithms.dapo_loss import DAPOConfig, DAPOLoss
from dapo.errors import TrainingError
from dapo.training.packing import pack

UNIFORM = -math.log(64)  # log-probability of any token under a table of zeros, V = 64


def assert_same(left, right):
    for name in left:
        torch.testing.assert_close(left[name], right[name], atol=1e-6, rtol=0, msg=lambda m, n=name: f"{n}: {m}")


# ---------------------------------------------------------------- division


@pytest.mark.parametrize("mini_bs", [1, 2])
def test_token_losses_are_divided_once_by_all_tokens_of_the_step(make_trainer, uniform, at_ratio, mini_bs):
    """B02: 2 tokens of loss 1 and 6 of loss 3, in one pass or in two: 20 / 8 = 2.5, never (1 + 3) / 2."""
    answers = [at_ratio(0, 2, -1.0), at_ratio(1, 6, -3.0)]
    trainer = make_trainer(uniform, lr=0.0, mini_bs=mini_bs, gradient_accumulation_steps=2 // mini_bs)
    stats = trainer.update(answers, 0.0)
    assert stats.loss == pytest.approx(2.5, abs=1e-5)
    assert (stats.optimizer_steps, stats.tokens) == (1, 8)


def test_each_optimizer_step_is_divided_by_its_own_tokens(make_trainer, uniform, at_ratio):
    """B06: 16 answers of 10 tokens, loss 1 each, 4 steps of 4: each step's loss is 40 / 40 = 1, not 40 / 160."""
    stats = make_trainer(uniform, mini_bs=4).update([at_ratio(n // 4, 10, -1.0) for n in range(16)], 0.0)
    assert stats.optimizer_steps == 4
    assert stats.loss == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("choices", "loss"),
    [
        ({"algo": "dapo"}, 10 / 6),
        ({"algo": "grpo"}, 2.0),
        ({"algo": "dapo", "loss_aggregation": "seq-mean-token-mean"}, 2.0),
        ({"algo": "dapo", "loss_aggregation": "seq-mean-token-sum"}, 5.0),
        ({"algo": "dr_grpo"}, 5.0 / 20),
    ],
)
def test_each_aggregation_is_what_its_name_says(make_trainer, uniform, at_ratio, choices, loss):
    """B07: four tokens of loss 1 and two of 3: 10/6; (1 + 3)/2; (4 + 6)/2; and that over the horizon of 20."""
    answers = [at_ratio(0, 4, -1.0), at_ratio(1, 2, -3.0)]
    assert make_trainer(uniform, choices=choices, mini_bs=1, gradient_accumulation_steps=2).update(
        answers, 0.0
    ).loss == pytest.approx(loss, abs=1e-5)


# ---------------------------------------------------------------- the same step however it is cut


@pytest.mark.parametrize("algo", ["dapo", "grpo", "gspo", "dr_grpo"])
@pytest.mark.parametrize(
    "cut",
    [
        {"mini_bs": 1, "gradient_accumulation_steps": 6},
        {"mini_bs": 2, "gradient_accumulation_steps": 3},
        {"mini_bs": 3, "gradient_accumulation_steps": 2},
        {"mini_bs": 4, "gradient_accumulation_steps": 2},
        {"mini_bs": 6, "max_tokens_per_pass": 1},
        {"mini_bs": 6, "max_tokens_per_pass": 9},
    ],
    ids=["6 x 1", "3 x 2", "2 x 3", "4 + 2", "by tokens, one each", "by tokens, 9"],
)
def test_weights_after_a_step_do_not_depend_on_how_it_is_cut(load_tiny, make_trainer, weights, batch, algo, cut):
    """float32, 1e-6, against all six answers in one pass."""
    whole, pieces = load_tiny(), load_tiny()
    one = make_trainer(whole, choices={"algo": algo}, mini_bs=6).update(batch, 1e-4)
    several = make_trainer(pieces, choices={"algo": algo}, **cut).update(batch, 1e-4)
    assert one.optimizer_steps == several.optimizer_steps == 1
    assert_same(weights(whole), weights(pieces))
    assert several.loss == pytest.approx(one.loss, rel=1e-5, abs=1e-6)
    assert several.grad_norm == pytest.approx(one.grad_norm, rel=1e-5)
    assert several.entropy == pytest.approx(one.entropy, rel=1e-6)
    assert several.logprob_abs_gap == pytest.approx(one.logprob_abs_gap, rel=1e-6)


def test_three_answers_into_passes_of_two_are_one_step_of_two_and_one(load_tiny, make_trainer, weights, batch):
    whole, uneven = load_tiny(), load_tiny()
    make_trainer(whole, mini_bs=3).update(batch[:3], 1e-4)
    stats = make_trainer(uneven, mini_bs=2, gradient_accumulation_steps=2).update(batch[:3], 1e-4)
    assert stats.optimizer_steps == 1
    assert_same(weights(whole), weights(uneven))


def test_max_tokens_per_pass_bounds_every_forward_pass(load_tiny, make_trainer, batch, monkeypatch):
    """9 packed tokens at most: 5 for the first two answers, 10 for one that cannot be cut, 5 + 1, and 1 + 3 + 1."""
    model = load_tiny()
    sizes: list[int] = []
    plain = model.hidden
    monkeypatch.setattr(model, "hidden", lambda tokens, *rest: (sizes.append(len(tokens)), plain(tokens, *rest))[1])
    make_trainer(model, mini_bs=6, max_tokens_per_pass=9).update(batch, 0.0)
    assert sizes == [5, 10, 6, 5]


def test_answers_are_trained_in_order_mini_bs_by_mini_bs(make_trainer, uniform, at_ratio):
    """5 answers, 2 a step: ceil(5 / 2) = 3 steps; progress counts them."""
    seen: list[tuple[int, int]] = []
    stats = make_trainer(uniform, mini_bs=2).update(
        [at_ratio(0, 1, 1.0)] * 5, 0.0, lambda done, total: seen.append((done, total))
    )
    assert stats.optimizer_steps == 3
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]


# ---------------------------------------------------------------- against a plain padded loop


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_packed_loss_and_gradient_are_those_of_a_plain_padded_loop(load_tiny, make_trainer, batch, temperature):
    """The module's own forward over right-padded rows, and the library's loss over a mask made from lengths."""
    trained, plain = load_tiny(), load_tiny()
    stats = make_trainer(trained, mini_bs=6, temperature=temperature).update(batch, 0.0)
    rows = [(*one.prompt.tokens, *one.completion.tokens) for one in batch]
    width = max(map(len, rows))
    tokens = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    old, mask = torch.zeros(len(rows), width), torch.zeros(len(rows), width)
    for number, one in enumerate(batch):
        place = slice(len(one.prompt.tokens), len(rows[number]))
        old[number, place], mask[number, place] = torch.tensor(one.completion.logprobs), 1.0
    plain.module.set_attn_implementation("eager")
    logits = plain.module(input_ids=tokens, use_cache=False).logits / temperature
    logp = logits.log_softmax(-1)[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0]
    advantages = torch.tensor([one.advantage for one in batch])
    out = DAPOLoss(DAPOConfig())(logp, old[:, 1:], advantages, mask[:, 1:])
    out["loss"].backward()
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in plain.module.parameters()])
    assert stats.loss == pytest.approx(out["loss"].item(), rel=1e-5)
    assert stats.grad_norm == pytest.approx(norm.item(), rel=1e-5)
    assert stats.clipped_upper == pytest.approx(out["up_clip_ratio"].item(), abs=1e-6)
    assert stats.clipped_lower == pytest.approx(out["low_clip_ratio"].item(), abs=1e-6)


def test_scores_come_in_the_order_of_the_answers(load_tiny, make_trainer, answer, algorithm, fresh_logprobs):
    """B95: lengths 3, 9, 1, 7. B18: and they are a plain float32 forward's to 1e-6."""
    model = load_tiny()
    answers = [answer(n, (5, 9, n + 2), range(n + 3, n + 3 + length)) for n, length in enumerate((3, 9, 1, 7))]
    packed = pack(answers, algorithm(), 20, model.attention)
    with torch.no_grad():
        logp, _ = make_trainer(model).score(packed)
        fresh = [fresh_logprobs(model, one.prompt.tokens, one.completion.tokens) for one in answers]
    assert [len(row) for row in fresh] == [3, 9, 1, 7]
    torch.testing.assert_close(logp, torch.cat(fresh), atol=2e-6, rtol=1e-6)


def test_the_trainer_scores_at_the_sampling_temperature(load_tiny, make_trainer, answer, algorithm, fresh_logprobs):
    model = load_tiny()
    one = answer(0, (5, 9), (7, 8, 0))
    packed = pack([one], algorithm(), 20, model.attention)
    with torch.no_grad():
        logp, _ = make_trainer(model, temperature=0.7).score(packed)
        fresh = fresh_logprobs(model, one.prompt.tokens, one.completion.tokens, 0.7)
    torch.testing.assert_close(logp, fresh, atol=2e-6, rtol=1e-6)


# ---------------------------------------------------------------- ratio and clip


def test_the_first_ratio_is_one_on_what_the_engine_wrote(load_tiny, make_trainer, answer, fresh_logprobs):
    model = load_tiny()
    with torch.no_grad():
        old = fresh_logprobs(model, (5, 9), (7, 8, 0)).tolist()
    stats = make_trainer(model).update([answer(0, (5, 9), (7, 8, 0), 1.0, old)], 0.0)
    assert stats.ratio_mean == pytest.approx(1.0, abs=1e-5)
    assert stats.ratio_std == pytest.approx(0.0, abs=1e-5)


def test_the_second_step_on_one_rollout_sees_moved_ratios(load_tiny, make_trainer, batch):
    """B14: the ratio is against the recorded log-probabilities, not against the present ones held fixed."""
    twice = [*batch, *batch]
    old = make_trainer(load_tiny(), mini_bs=12).update(twice, 1e-2)
    moved = make_trainer(load_tiny(), mini_bs=6).update(twice, 1e-2)
    assert moved.optimizer_steps == 2
    assert abs(moved.ratio_mean - old.ratio_mean) > 1e-3


def test_the_ratio_that_is_reported_is_to_the_rollout_policy_under_on_policy_losses_too(make_trainer, uniform, answer):
    """Tokens drawn with half their present probability: log ratio log 2. The loss itself is -A: its own ratio is 1."""
    stats = make_trainer(uniform, choices={"algo": "grpo"}).update(
        [answer(0, (5,), (7, 8), 0.5, (UNIFORM - math.log(2),) * 2)], 0.0
    )
    assert stats.loss == pytest.approx(-0.5)
    assert (stats.ratio_mean, stats.clipped_upper) == (pytest.approx(2.0, abs=1e-4), 0.0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "upper", "lower"),
    [
        (1.5, 1.0, -1.28, 1.0, 0.0),
        (0.5, -1.0, 0.8, 0.0, 1.0),
        (1.5, -1.0, 1.5, 0.0, 0.0),
        (0.5, 1.0, -0.5, 0.0, 0.0),
        (1.25, 1.0, -1.25, 0.0, 0.0),
    ],
)
def test_the_clip_holds_a_risen_good_token_and_a_fallen_bad_one(
    make_trainer, uniform, at_ratio, ratio, advantage, loss, upper, lower
):
    """B14, B91: -min(r A, clip(r, 0.8, 1.28) A). Where the clip acts nothing is learned: the gradient is 0."""
    stats = make_trainer(uniform).update([at_ratio(0, 3, advantage, ratio)], 0.0)
    assert stats.loss == pytest.approx(loss, abs=1e-4)
    assert (stats.clipped_upper, stats.clipped_lower) == (upper, lower)
    assert (stats.grad_norm == 0.0) == bool(upper or lower)
    assert stats.ratio_mean == pytest.approx(ratio, abs=1e-4)


def test_a_huge_log_ratio_stays_finite_and_is_reported_unbounded(make_trainer, uniform, answer):
    """B16: training minus rollout log-probability is 100, not the bound of 20; the loss is exp(20) = 4.85e8."""
    stats = make_trainer(uniform).update([answer(0, (5,), (7, 8), -1.0, (UNIFORM - 100,) * 2)], 0.0)
    assert stats.loss == pytest.approx(math.exp(20), rel=1e-4)
    assert stats.logprob_gap == pytest.approx(100.0, abs=1e-3)
    assert stats.logprob_abs_gap == pytest.approx(100.0, abs=1e-3)


# ---------------------------------------------------------------- metrics


@pytest.mark.parametrize("cut", [{"mini_bs": 2}, {"mini_bs": 1}, {"mini_bs": 1, "gradient_accumulation_steps": 2}])
def test_token_metrics_are_means_over_tokens_not_over_passes(make_trainer, table_model, answer, cut):
    """B88, B90: one token of entropy ln 64 and three of entropy 0: ln 64 / 4, not ln 64 / 2.

    After `a` (2) all 64 tokens are alike; after `b` (3) it is all but sure that `b` comes.
    """
    table = torch.zeros(64, 64)
    table[3, 3] = 80.0
    answers = [answer(0, (2,), (7,), 1.0, (UNIFORM,)), answer(1, (3,), (3, 3, 3), 1.0, (-1.0, 0.0, 0.0))]
    stats = make_trainer(table_model(table), **cut).update(answers, 0.0)
    assert stats.entropy == pytest.approx(math.log(64) / 4, abs=1e-4)
    assert stats.train_logprob == pytest.approx(UNIFORM / 4, abs=1e-4)
    assert stats.rollout_logprob == pytest.approx((UNIFORM - 1.0) / 4, abs=1e-4)
    assert stats.logprob_gap == pytest.approx(1 / 4, abs=1e-4)
    assert stats.ratio_mean == pytest.approx((3 + math.e) / 4, abs=1e-4)
    # E[r^2] - E[r]^2 of 1, 1, 1, e
    assert stats.ratio_std == pytest.approx(math.sqrt((3 + math.e**2) / 4 - ((3 + math.e) / 4) ** 2), abs=1e-4)


# ---------------------------------------------------------------- what moves


def test_the_decision_to_stop_is_learned(table_model, make_trainer, answer):
    """B21: after `b` (3) came the sampled end token, with a positive advantage: its logit there rises."""
    model = table_model(torch.zeros(64, 64))
    with torch.no_grad():
        before = (model.head @ model.module.model.embed_tokens.weight[3])[0].item()
    stats = make_trainer(model).update([answer(0, (2,), (3, 0), 1.0, (UNIFORM, UNIFORM))], 1e-2)
    with torch.no_grad():
        after = (model.head @ model.module.model.embed_tokens.weight[3])[0].item()
    assert stats.tokens == 2
    assert after > before


def test_good_answers_become_likelier_and_bad_ones_less(load_tiny, make_trainer, answer, fresh_logprobs):
    model = load_tiny()
    good, bad = (7, 8, 0), (9, 3)

    def totals():
        with torch.no_grad():
            return [fresh_logprobs(model, (5, 6), tokens).sum().item() for tokens in (good, bad)]

    before = totals()
    old = [fresh_logprobs(model, (5, 6), tokens).tolist() for tokens in (good, bad)]
    make_trainer(model).update([answer(0, (5, 6), good, 1.0, old[0]), answer(0, (5, 6), bad, -1.0, old[1])], 1e-3)
    after = totals()
    assert after[0] > before[0]
    assert after[1] < before[1]


def test_a_learning_rate_of_zero_changes_nothing(load_tiny, make_trainer, weights, batch):
    model = load_tiny()
    before = weights(model)
    make_trainer(model).update(batch, 0.0)
    for name, now in weights(model).items():
        assert torch.equal(now, before[name])


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_step_that_is_not_finite_leaves_the_weights_as_they_were_and_names_its_rows(
    load_tiny, make_trainer, weights, answer, where
):
    """A NaN in a recorded log-probability spoils the loss; an overflow in the backward pass the gradient alone."""
    model = load_tiny()
    trainer = make_trainer(model, max_skipped_updates=2)
    old = (math.nan, -1.0) if where == "loss" else (-2.0, -1.0)
    hook = None
    if where == "gradient":
        hook = model.module.model.norm.weight.register_hook(lambda gradient: gradient * math.inf)
    before = weights(model)
    bad = [answer(0, (5, 6), (7, 8), 1.0, old, index=41)]
    stats = trainer.update(bad, 1e-2)
    assert [step.rows for step in stats.skipped] == [(41,)]
    assert stats.optimizer_steps == 0
    with pytest.raises(TrainingError, match="41"):
        trainer.update(bad, 1e-2)
    for name, now in weights(model).items():
        assert torch.equal(now, before[name]), name
    if hook is not None:
        hook.remove()
    good = trainer.update([answer(0, (5, 6), (7, 8), 1.0)], 1e-3)
    assert (good.skipped, good.optimizer_steps) == ((), 1)
    assert all(parameter.isfinite().all() for parameter in weights(model).values())


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "not tied"])
def test_the_trainer_s_weights_are_what_a_saved_model_holds(load_tiny, make_trainer, tmp_path, tied):
    """Every tensor once, a tied head by the name of the embedding, as the file has them."""
    trainer = make_trainer(load_tiny(tie_word_embeddings=tied))
    trainer.save(tmp_path)
    saved = load_file(tmp_path / "model" / "model.safetensors")
    given = dict(trainer.weights())
    assert given.keys() == saved.keys()
    assert all(torch.equal(given[name], saved[name]) for name in saved)


def test_scoring_is_the_forward_pass_of_a_module_that_holds_every_parameter(load_tiny, make_trainer):
    """Whoever shards parameters wraps it: its head must not be read beside it."""
    trainer = make_trainer(load_tiny())
    assert {id(each) for each in trainer.policy.parameters()} == {
        id(each) for each in trainer.model.module.parameters()
    }
