"""A pass: which token is predicted from where, by hand; and nothing that was not sampled is ever trained."""

from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer, models

from dapo.models.packed_attention import FamilyAttention
from dapo.training.packing import pack


@pytest.fixture
def packed(algorithm):
    return lambda answers, **choices: pack(
        answers, algorithm(**choices), 20, lambda families: FamilyAttention(families, torch.float32, "cpu")
    )


def test_answers_lie_behind_one_copy_of_their_prompt_and_are_predicted_from_the_token_before(packed, answer):
    """5 9 12 | 7 3 | - | 4 | 2: of each answer all but the last token is an input.

    7 and 8 are predicted from the prompt's 12 (place 2), 3 from 7 (3), the end from 3 (4); 2 from the prompt 4 (5)
    and its end from 2 (6).
    """
    out = packed([answer(0, (5, 9, 12), (7, 3, 0)), answer(0, (5, 9, 12), (8,)), answer(1, (4,), (2, 0))])
    assert out.token_T.tolist() == [5, 9, 12, 7, 3, 4, 2]
    assert out.packing.position_T.tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert out.predictor_R.tolist() == [2, 3, 4, 2, 5, 6]
    assert out.target_R.tolist() == [7, 3, 0, 8, 2, 0]


def test_a_group_with_two_prompts_is_an_error_since_its_answers_would_be_trained_on_the_first(packed, answer):
    packed([answer(0, (5, 9), (7,)), answer(1, (5, 8), (7,))])
    with pytest.raises(ValueError, match="group 3 has two prompts"):
        packed([answer(3, (5, 9), (7,)), answer(3, (5, 8), (7,))])


def test_the_first_answer_token_is_trained_and_the_last_prompt_token_is_not(packed, answer):
    """B24: p0 p1 r0 r1 r2: of the four next-token targets p1 r0 r1 r2 the mask is 0 1 1 1."""
    out = packed([answer(0, (5, 6), (7, 8, 9))])
    assert [int(place in out.predictor_R) for place in range(len(out.token_T))] == [0, 1, 1, 1]
    assert out.target_R.tolist() == [7, 8, 9]


def test_advantage_old_logprob_and_weight_go_with_each_token_of_their_answer(packed, answer):
    """GRPO weighs a token by one over its answer's length: 1/2, 1/2 and 1."""
    answers = [answer(0, (5,), (7, 0), 1.5, (-0.5, -0.25)), answer(0, (5,), (8,), -1.5, (-3.0,))]
    response = packed(answers, algo="grpo").response
    assert response.advantage.tolist() == [1.5, 1.5, -1.5]
    assert response.old_logp.tolist() == [-0.5, -0.25, -3.0]
    assert response.old_logp.dtype == torch.float32
    assert response.weight.tolist() == [0.5, 0.5, 1.0]
    assert response.sequence.tolist() == [0, 0, 1]
    assert response.answers == 2
    assert packed(answers).response.weight.tolist() == [1.0, 1.0, 1.0]
    assert packed(answers, algo="dr_grpo").response.weight.tolist() == pytest.approx([1 / 20] * 3)


def test_sampled_ids_are_trained_even_where_their_text_has_other_ids(packed, answer):
    """B17: `he` `llo` were sampled; encoding their text again would give `hello`."""
    tokenizer = Tokenizer(models.WordLevel({"hello": 7, "he": 5, "llo": 6, "?": 0}, unk_token="?"))
    assert tokenizer.encode("hello").ids == [7]
    out = packed([answer(0, (3,), (5, 6), logprobs=(-1.0, -2.0))])
    assert out.target_R.tolist() == [5, 6]
    assert out.response.old_logp.tolist() == [-1.0, -2.0]


def test_end_tokens_count_by_place_and_not_by_value(packed, answer):
    """B20: the padding token is the end token, 0. An answer of 5 6 0 trains 3 tokens; a prompt's 0 none."""
    out = packed([answer(0, (0, 4, 0), (5, 6, 0)), answer(1, (4,), (0,))])
    assert out.target_R.tolist() == [5, 6, 0, 0]


def test_the_same_prompt_drawn_twice_is_two_groups(packed, answer):
    """B45: what belongs together is told by the group's id, not by its text."""
    out = packed([answer(0, (5, 6), (7, 0)), answer(1, (5, 6), (8, 0))])
    assert out.token_T.tolist() == [5, 6, 7, 5, 6, 8]
