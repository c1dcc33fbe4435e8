"""Tokens are drawn by exactly their probability, and recorded with it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dapo.rollout.settings import Sampling
from dapo.rollout.token_sampling import BLOCK, draw_tokens

ONE_BELOW = math.nextafter(1.0, 0.0)
P = [0.5, 0.3, 0.2]


def drawn(probabilities, uniforms, **changes):
    """Tokens and log-probabilities of one row of probabilities, one draw per uniform number."""
    logits = torch.tensor([probabilities], dtype=torch.float64).log().float()
    row = torch.zeros(len(uniforms), dtype=torch.int64)
    out = draw_tokens(logits, row, torch.tensor(uniforms, dtype=torch.float64), Sampling(1, 1, **changes))
    assert out.logprobs.dtype == torch.float32
    return out.tokens.tolist(), out.logprobs.tolist()


def test_a_uniform_number_picks_the_token_whose_share_it_falls_in():
    """Shares of 0.5, 0.3, 0.2 end at 0.5, 0.8 and 1."""
    tokens, logprobs = drawn(P, [0.0, 0.49, 0.51, 0.79, 0.81, ONE_BELOW])
    assert tokens == [0, 0, 1, 1, 2, 2]
    assert logprobs == pytest.approx([math.log(P[token]) for token in tokens], abs=1e-6)


def test_temperature_sharpens_and_the_logprob_is_of_the_sharpened_distribution():
    """At 0.5 the squares 0.25, 0.09, 0.04 over 0.38: shares end at 0.6579 and 0.8947."""
    tokens, logprobs = drawn(P, [0.65, 0.67, 0.89, 0.90], temperature=0.5)
    assert tokens == [0, 1, 1, 2]
    assert logprobs == pytest.approx(
        [math.log(0.25 / 0.38), *[math.log(0.09 / 0.38)] * 2, math.log(0.04 / 0.38)], abs=1e-6
    )


def test_top_p_keeps_the_smallest_set_and_renormalises_its_logprobs():
    """B10: top_p 0.8 keeps 0 and 1; 0.5 / 0.8 = 0.625, log -0.4700. The token that reaches top_p is kept."""
    tokens, logprobs = drawn(P, [0.0, 0.62, 0.63, ONE_BELOW], top_p=0.8 - 1e-6)
    assert tokens == [0, 0, 1, 1]
    assert logprobs == pytest.approx([-0.4700, -0.4700, math.log(0.375), math.log(0.375)], abs=1e-4)
    assert drawn(P, [0.0, ONE_BELOW], top_p=0.4)[0] == [0, 0]
    assert drawn(P, [ONE_BELOW], top_p=0.81)[0] == [2]


def test_top_k_keeps_the_likeliest_and_renormalises_their_logprobs():
    """Of 0.2, 0.5, 0.3 the likeliest two: 0.5 / 0.8 and 0.3 / 0.8."""
    tokens, logprobs = drawn([0.2, 0.5, 0.3], [0.0, 0.62, 0.63, ONE_BELOW], top_k=2)
    assert tokens == [1, 1, 2, 2]
    assert logprobs == pytest.approx([math.log(0.625)] * 2 + [math.log(0.375)] * 2, abs=1e-6)
    assert drawn(P, [ONE_BELOW], top_k=3)[0] == drawn(P, [ONE_BELOW], top_k=99)[0] == [2]


def test_greedy_takes_the_likeliest_with_its_probability_at_the_temperature():
    tokens, logprobs = drawn([0.2, 0.5, 0.3], [0.0, 0.9], greedy=True)
    assert tokens == [1, 1]
    assert logprobs == pytest.approx([math.log(0.5)] * 2, abs=1e-6)
    assert drawn([0.2, 0.5, 0.3], [0.0], greedy=True, temperature=0.5)[1] == pytest.approx(
        [math.log(0.25 / 0.38)], abs=1e-6
    )


def test_sequences_that_share_a_row_draw_each_by_its_own_number():
    logits = torch.tensor([P, P[::-1]]).log()
    uniform = torch.tensor([0.1, 0.1, 0.9, 0.3], dtype=torch.float64)
    out = draw_tokens(logits, torch.tensor([0, 1, 0, 1]), uniform, Sampling(1, 1))
    assert out.tokens.tolist() == [0, 0, 2, 1]
    assert out.logprobs.exp().tolist() == pytest.approx([0.5, 0.2, 0.2, 0.3], abs=1e-6)


@pytest.mark.parametrize("holder", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 9])
def test_tokens_without_probability_are_never_drawn(holder):
    """One token of 2 1/2 blocks has all of it, at the edges of a block and inside."""
    probabilities = [0.0] * (2 * BLOCK + 10)
    probabilities[holder] = 1.0
    tokens, logprobs = drawn(probabilities, [0.0, 1e-300, 0.5, ONE_BELOW])
    assert tokens == [holder] * 4
    assert logprobs == [0.0] * 4


def test_rounding_at_the_border_of_two_blocks_draws_no_token_without_probability():
    """Block 0 holds 3, block 1 three times 2^-51, block 2 nothing in its first entry and 1 in its second.

    The running sum 4 + 3 x 2^-51 rounds up to 4 + 2^-49, so that taking block 2 off again gives 3 + 2^-49, above
    the 3 + 3 x 2^-51 where it begins: a target between the two lies in block 2, before what seems its beginning.
    """
    logits = torch.full((1, 3 * BLOCK), float("-inf"))
    logits[0, :3] = 0.0
    logits[0, BLOCK : BLOCK + 3] = -51 * math.log(2.0)
    logits[0, 2 * BLOCK + 1] = 0.0
    near = (3 + 3 * 2.0**-51) / (4 + 2.0**-49)
    uniforms = torch.tensor([near, math.nextafter(near, 1), math.nextafter(near, 0)], dtype=torch.float64)
    out = draw_tokens(logits, torch.zeros(3, dtype=torch.int64), uniforms, Sampling(1, 1))
    assert out.logprobs.isfinite().all()
    assert (logits[0, out.tokens] > float("-inf")).all()


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    size=st.integers(1, 3 * BLOCK),
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from([0.0, 1.0, 10.0]),
)
def test_any_distribution_is_drawn_like_a_plain_running_sum_in_float64(data, size, seed, spread):
    """numpy's searchsorted on the cumulative sum; a number within 1e-6 of a border may fall on either side."""
    generator = np.random.default_rng(seed)
    logits = (spread * generator.standard_normal(size)).astype(np.float32)
    if data.draw(st.booleans()):
        logits[generator.random(size) < 0.4] = -np.inf
        logits[generator.integers(size)] = 1.0
    uniform = np.array([0.0, ONE_BELOW, *generator.random(6)])
    mass = np.exp(logits.astype(np.float64) - logits.max())
    borders = np.cumsum(mass) / mass.sum()
    out = draw_tokens(
        torch.from_numpy(logits)[None], torch.zeros(8, dtype=torch.int64), torch.from_numpy(uniform), Sampling(1, 1)
    )
    expected = np.searchsorted(borders, uniform, side="right").clip(max=size - 1)
    tokens = out.tokens.numpy()
    near = np.abs(borders[:, None] - uniform[None]).min(0) < 1e-6
    assert (tokens == expected)[~near].all()
    assert np.isfinite(logits[tokens]).all()
    right = np.log(mass[tokens] / mass.sum())
    np.testing.assert_allclose(out.logprobs.numpy(), right, atol=1e-5)


def test_frequencies_follow_the_probabilities():
    """Chi-square of 40,000 draws over 300 tokens has mean 299 and deviation sqrt(598) = 24.5: 450 is 6 of them off."""
    generator = np.random.default_rng(0)
    logits = generator.standard_normal(300).astype(np.float32)
    uniform = torch.from_numpy(generator.random(40_000))
    out = draw_tokens(torch.from_numpy(logits)[None], torch.zeros(40_000, dtype=torch.int64), uniform, Sampling(1, 1))
    expected = 40_000 * np.exp(logits) / np.exp(logits).sum()
    counts = np.bincount(out.tokens.numpy(), minlength=300)
    assert ((counts - expected) ** 2 / expected).sum() < 450
