"""The contract of a rollout engine, over every engine there is (see conftest.py)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dapo.rollout.engine import Request, answer_all
from dapo.rollout.settings import Sampling

TEXTS = ("1+1=", "what is 2*3?", "a", "continue this: 1, 2, 3,")


@pytest.fixture
def draws(draw):
    return [draw(number, text) for number, text in enumerate(TEXTS)]


def answers(rollouts):
    return [completion.tokens for rollout in rollouts for completion in rollout.completions]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.5])
def test_logprobs_are_those_of_a_fresh_forward_pass_at_the_sampling_temperature(
    make_engine, load_tiny, generate, draws, fresh_logprobs, temperature
):
    """float32, 1e-4; at another temperature they are those of the tempered distribution, not of the plain one."""
    model = load_tiny()
    for rollout in generate(make_engine(model, 3), draws, n=3, temperature=temperature):
        for completion in rollout.completions:
            fresh = fresh_logprobs(model, rollout.draw.prompt.tokens, completion.tokens, temperature)
            torch.testing.assert_close(torch.tensor(completion.logprobs), fresh, atol=1e-4, rtol=0)


def test_logprobs_are_float32_numbers(make_engine, load_tiny, generate, draws):
    """B12: each is exactly a float32; bfloat16 ones would also be, but far from a fresh pass (above)."""
    for rollout in generate(make_engine(load_tiny(dtype="bfloat16")), draws):
        for logprob in rollout.completions[0].logprobs:
            assert logprob == float(np.float32(logprob))


def test_many_prompts_at_once_give_the_tokens_of_each_alone(make_engine, load_tiny, generate, draws):
    model = load_tiny()
    together = answers(generate(make_engine(model), draws, n=3))
    alone = [tokens for draw in draws for tokens in answers(generate(make_engine(model), [draw], n=3))]
    assert together == alone
    assert len({len(tokens) for tokens in together}) > 1  # some end before others


@pytest.mark.parametrize("slots", [1, 2, 5, 64])
def test_fewer_slots_than_answers_give_the_same_answers(make_engine, load_tiny, generate, draws, slots):
    """A finished answer's slot is taken by the next one in the middle of the others."""
    model = load_tiny()
    many = [*draws, *(type(draw)(draw.id + 4, draw.prompt) for draw in draws)]
    assert answers(generate(make_engine(model, slots), many, n=3)) == answers(
        generate(make_engine(model, 24), many, n=3)
    )


def test_three_prompts_of_two_answers_are_six_in_the_order_of_their_prompts(
    make_engine, table_model, always, generate, draw
):
    """B76: with a model that echoes its prompt's last letter onwards, each answer names its prompt."""
    table = always("xy", start="1") + always("uv", start="2") + always("pq", start="3")
    engine = make_engine(table_model(table), 4)
    rollouts = generate(engine, [draw(number, f"{number + 1}x2={number + 1}") for number in range(3)], n=2)
    assert [len(rollout.completions) for rollout in rollouts] == [2, 2, 2]
    texts = [completion.text for rollout in rollouts for completion in rollout.completions]
    assert texts == ["xy", "xy", "uv", "uv", "pq", "pq"]


def test_answers_of_a_uniform_model_differ_by_sample_by_draw_and_by_seed(make_engine, table_model, generate, draw):
    """B77: V = 64, 8 tokens: an equal pair has a chance of about 64^-8. The same seed and draw repeat all of it."""
    engine = make_engine(table_model(torch.zeros(64, 64)))
    first = answers(generate(engine, [draw(0, "a")], n=8, new=8))
    assert len(set(first)) == 8
    assert answers(generate(engine, [draw(0, "a")], n=8, new=8)) == first
    next_draw = answers(generate(engine, [draw(1, "a", index=0)], n=8, new=8))
    next_seed = answers(generate(engine, [draw(0, "a")], n=8, new=8, seed=1))
    assert len({*first, *next_draw, *next_seed}) == 24


def test_more_answers_do_not_change_the_first_ones(make_engine, load_tiny, generate, draws):
    model = load_tiny()
    few, many = (generate(make_engine(model), draws, n=n) for n in (2, 5))
    for two, five in zip(few, many, strict=True):
        assert answers([two]) == answers([five])[:2]


def test_the_sampled_end_token_is_kept_with_its_logprob_and_counts_as_stop(
    make_engine, table_model, always, generate, draw
):
    """B21: a, b, c, then the end: 4 tokens with 4 log-probabilities, of which the text shows three letters."""
    engine = make_engine(table_model(always("abc", start="?")))
    (completion,) = generate(engine, [draw(0, "which?")])[0].completions
    assert completion.tokens == (2, 3, 4, 0)
    assert completion.text == "abc"
    assert completion.stop_reason == "stop"
    assert completion.logprobs == pytest.approx([0.0] * 4, abs=1e-4)
    assert len(completion.logprobs) == 4


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_an_answer_cut_at_the_limit_counts_as_length(make_engine, table_model, always, generate, draw, limit):
    """The end would come as the fourth token."""
    engine = make_engine(table_model(always("abc", start="?")))
    (completion,) = generate(engine, [draw(0, "?")], new=limit)[0].completions
    assert completion.tokens == (2, 3, 4)[:limit]
    assert completion.stop_reason == "length"
    assert completion.truncated


def test_an_end_token_at_the_very_limit_is_a_stop(make_engine, table_model, always, generate, draw):
    engine = make_engine(table_model(always("abc", start="?")))
    (completion,) = generate(engine, [draw(0, "?")], new=4)[0].completions
    assert (len(completion.tokens), completion.stop_reason) == (4, "stop")


def test_prompt_and_answer_never_exceed_the_context(make_engine, table_model, generate, draw):
    """B78: a context of 20 leaves 20 - 15 = 5 tokens to a prompt of 15, however many are allowed."""
    table = torch.zeros(64, 64)
    table[:, 0] = -1e4  # never ends by itself
    engine = make_engine(table_model(table, max_position_embeddings=20))
    rollouts = generate(engine, [draw(0, "a" * 15), draw(1, "a" * 3)], n=2, new=9)
    assert [len(tokens) for tokens in answers(rollouts)] == [5, 5, 9, 9]


def test_generation_uses_the_weights_of_the_moment(make_engine, load_tiny, generate, draws, fresh_logprobs):
    """B83: the same prompts before and after an update, with the same engine and with a new one."""
    model = load_tiny()
    engine = make_engine(model)
    before = generate(engine, draws, n=2)
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    after = generate(engine, draws, n=2)
    assert answers(after) != answers(before)
    assert after == generate(make_engine(model), draws, n=2)
    for rollout in after:
        for completion in rollout.completions:
            fresh = fresh_logprobs(model, rollout.draw.prompt.tokens, completion.tokens)
            torch.testing.assert_close(torch.tensor(completion.logprobs), fresh, atol=1e-4, rtol=0)


def test_a_prompt_is_computed_once_for_all_its_answers(make_engine, load_tiny, generate, draws):
    """With 2 slots for 3 x 4 answers, a prompt's answers start at different times."""
    engine = make_engine(load_tiny(), 2)
    rollouts = generate(engine, draws, n=3)
    assert engine.counters.prompt_tokens == sum(len(text) for text in TEXTS)
    assert engine.counters.sampled_tokens == sum(len(tokens) for tokens in answers(rollouts))
    assert engine.counters.finished == 12


def test_closing_the_iterator_stops_the_work_and_the_engine_goes_on_with_other_work(
    make_engine, table_model, generate, draw
):
    table = torch.zeros(64, 64)
    table[:, 0] = -1e4
    engine = make_engine(table_model(table))
    rollouts = answer_all(engine, [draw(0, "a"), draw(1, "b")], Sampling(n=2, max_new_tokens=50), 0)
    assert next(rollouts) is None
    rollouts.close()
    assert engine.counters.sampled_tokens < 50
    assert len(generate(engine, [draw(2, "c")], n=2)[0].completions) == 2


def test_a_group_is_yielded_as_soon_as_it_is_whole(make_engine, table_model, always, draw):
    """The answer of 1 token is handed out before the one of 30 is written."""
    table = torch.zeros(64, 64)
    table[:, 0] = -1e4
    table[2, 0] = 60.0  # after a: the end
    engine = make_engine(table_model(table))
    draws = [draw(0, "b"), draw(1, "a")]
    rollouts = answer_all(engine, draws, Sampling(n=1, max_new_tokens=30, temperature=1e-3), 0)
    first = next(rollout for rollout in rollouts if rollout is not None)
    assert first.draw.id == 1
    assert engine.counters.sampled_tokens <= 4


def test_a_stop_string_ends_the_answer_and_stays_in_it(make_engine, table_model, always, generate, draw, ids):
    """B25: the model writes `4</b> q`; kept and trained is `4</b>`, one id and one log-probability per letter."""
    engine = make_engine(table_model(always("4</b> q", start="?")))
    (completion,) = generate(engine, [draw(0, "?")], stop_strings=("nothing", "</b>"))[0].completions
    assert completion.text == "4</b>"
    assert completion.tokens == ids("4</b>")
    assert len(completion.logprobs) == 5
    assert completion.stop_reason == "stop"


def test_a_stop_string_in_the_prompt_stops_nothing(make_engine, table_model, always, generate, draw):
    engine = make_engine(table_model(always("abc", start="?")))
    (completion,) = generate(engine, [draw(0, "</b>?")], stop_strings=("b>?", "?a"))[0].completions
    assert completion.text == "abc"


def test_greedy_takes_the_likeliest_token_whatever_the_seed(make_engine, load_tiny, generate, draws, plain_logits):
    model = load_tiny()
    rollouts = generate(make_engine(model), draws, greedy=True)
    assert answers(rollouts) == answers(generate(make_engine(model), draws, greedy=True, seed=5))
    for rollout in rollouts:
        tokens = rollout.completions[0].tokens
        logits = plain_logits(model, (*rollout.draw.prompt.tokens, *tokens))[len(rollout.draw.prompt.tokens) - 1 : -1]
        assert tuple(logits.argmax(-1).tolist()) == tokens


def test_no_draws_are_no_rollouts(make_engine, load_tiny, generate):
    assert generate(make_engine(load_tiny()), []) == []


def stepped(engine, steps=200):
    """What the engine finishes in so many steps, by draw and sample."""
    return {
        (done.request.draw.id, done.request.sample): done.completion for _ in range(steps) for done in engine.step()
    }


def tokens_of(found):
    return {key: answer.tokens for key, answer in found.items()}


def requests_of(draws, new=20, **changes):
    sampling = Sampling(n=2, max_new_tokens=new, **changes)
    return [Request(draw, sample, sampling, 0) for draw in draws for sample in range(2)]


@pytest.mark.parametrize("slots", [2, 3, 64])
@pytest.mark.parametrize("steps", [1, 3, 7])
def test_an_answer_that_was_interrupted_goes_on_as_if_it_had_not_been(
    make_engine, load_tiny, draws, fresh_logprobs, slots, steps
):
    """B78: on another engine even; tokens already written count towards the limit, and no number is drawn twice."""
    model = load_tiny()
    whole, first, second = make_engine(model, slots), make_engine(model, slots), make_engine(model, 5)
    whole.submit(requests_of(draws))
    first.submit(requests_of(draws))
    found = stepped(first, steps)
    rest = first.abort()
    assert len(found) + len(rest) == 8
    assert any(request.tokens for request in rest)
    assert first.step() == []
    second.submit(rest)
    found |= stepped(second)
    assert tokens_of(found) == tokens_of(stepped(whole))
    for (number, _), answer in found.items():
        fresh = fresh_logprobs(model, draws[number].prompt.tokens, answer.tokens)
        torch.testing.assert_close(torch.tensor(answer.logprobs), fresh, atol=1e-4, rtol=0)


@torch.no_grad()
def test_answers_that_go_on_under_new_weights_are_drawn_by_them_alone(make_engine, load_tiny, draws, fresh_logprobs):
    """B83: each token's log-probability is that of the weights that drew it; no state of the old ones is used."""
    model = load_tiny()
    engine = make_engine(model)
    engine.submit(requests_of(draws))
    early = stepped(engine, 4)
    rest = engine.abort()
    old = [fresh_logprobs(model, request.draw.prompt.tokens, request.tokens) for request in rest]
    engine.submit(rest)
    for parameter in model.module.parameters():
        parameter.mul_(1.05)
    engine.load(7)
    assert engine.version == 7
    found = stepped(engine)
    assert len(early) + len(found) == 8
    for request, before in zip(rest, old, strict=True):
        answer = found[request.draw.id, request.sample]
        after = fresh_logprobs(model, request.draw.prompt.tokens, answer.tokens)
        expected = torch.cat([before, after[len(before) :]])
        torch.testing.assert_close(torch.tensor(answer.logprobs), expected, atol=1e-4, rtol=0)


def test_requests_that_come_while_others_run_change_nothing_in_them(make_engine, load_tiny, draws):
    model = load_tiny()
    together, apart = make_engine(model), make_engine(model)
    together.submit(requests_of(draws))
    apart.submit(requests_of(draws[:2]))
    found = stepped(apart, 3)
    apart.submit(requests_of(draws[2:]))
    assert tokens_of(found | stepped(apart)) == tokens_of(stepped(together))


def test_requests_drawn_otherwise_or_longer_wait_their_turn_and_are_answered(make_engine, load_tiny, draws):
    """Another temperature, then longer answers than there is room for beside the others."""
    model = load_tiny()
    kinds = ({"new": 6}, {"new": 6}, {"new": 6, "temperature": 0.5}, {"new": 40})
    requests = [requests_of([draw], **kind) for draw, kind in zip(draws, kinds, strict=True)]
    engine = make_engine(model)
    engine.submit(requests[0] + requests[1])
    found = stepped(engine, 1)
    engine.submit(requests[2] + requests[3])
    found |= stepped(engine)
    for each in requests:
        alone = make_engine(model)
        alone.submit(each)
        expected = tokens_of(stepped(alone))
        assert len(expected) == 2
        assert {key: found[key].tokens for key in expected} == expected
