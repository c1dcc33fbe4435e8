"""From groups to advantages: raw rewards, then the overlong penalty, then the comparison within the group."""

from __future__ import annotations

import pytest

from dapo.records import AnswerLimit, Completion, Group, Prompt, Score
from dapo.training.batch import answers_of, by_group, judge_groups


def group(rewards, lengths=None, *, number=0, prompt=(5, 6), cut=()):
    """A group whose answers have these rewards and lengths; those in `cut` were truncated."""
    completions = tuple(
        Completion((7,) * length, (-1.0,) * length, "", "length" if place in cut else "stop")
        for place, length in enumerate(lengths or [1] * len(rewards))
    )
    return Group(number, Prompt(number, "", prompt), completions, tuple(Score(value) for value in rewards), 0)


def advantages(groups, algorithm, limit=20):
    return [value for judged in judge_groups(groups, algorithm, AnswerLimit(limit)) for value in judged.advantages]


def test_advantages_compare_an_answer_with_its_own_group(algorithm):
    """Population deviation: 1 0 0 0 has mean 0.25 and deviation sqrt(3)/4 = 0.433013; 10 0 0 0 the same, times 10."""
    right = [1.732051, -0.577350, -0.577350, -0.577350]
    got = advantages([group([1, 0, 0, 0]), group([10, 0, 0, 0], number=1)], algorithm())
    assert got == pytest.approx([*right, *right], abs=1e-6)


def test_sample_deviation_and_eps_are_settings(algorithm):
    """B34: 1 0 0 0 by the sample deviation 0.5: 1.5 and -0.5. With eps 0.5 added: half of it."""
    assert advantages([group([1, 0, 0, 0])], algorithm(adv_correction=1)) == pytest.approx([1.5, -0.5, -0.5, -0.5])
    assert advantages([group([1, 0, 0, 0])], algorithm(adv_correction=1, adv_eps=0.5)) == pytest.approx(
        [0.75, -0.25, -0.25, -0.25]
    )


@pytest.mark.parametrize(
    ("scale", "values"), [("group", [0.7071, 0.7071]), ("none", [0.5, 5.0]), ("batch", [0.10296, 1.02960])]
)
def test_what_advantages_are_divided_by(algorithm, scale, values):
    """B42: groups 1 0 and 10 0 with sample deviations 0.7071 and 7.071; of all four 4.8563."""
    choices = (
        algorithm(scale_advantages=scale, adv_correction=1) if scale != "none" else algorithm(scale_advantages=scale)
    )
    got = advantages([group([1, 0]), group([10, 0], number=1)], choices)
    assert got == pytest.approx([values[0], -values[0], values[1], -values[1]], abs=1e-4)


@pytest.mark.parametrize(
    ("length", "penalty"), [(15, 0.0), (16, 0.0), (17, -0.25), (18, -0.5), (19, -0.75), (20, -1.0)]
)
def test_the_overlong_penalty_by_length(algorithm, length, penalty):
    """B36: limit 20, buffer 4; B38: whatever the prompt's length; the raw reward stays what it was."""
    choices = algorithm(dapo_overlong_buffer_len=4)
    for prompt in ((5,), (5,) * 10):
        (judged,) = judge_groups([group([1, 0], [length, 1], prompt=prompt)], choices, AnswerLimit(20))
        assert judged.penalties == (penalty, 0.0)
        assert judged.shaped_rewards == [1 + penalty, 0.0]
        assert judged.group.rewards == [1, 0]


def test_the_penalty_s_factor_multiplies_it_and_a_buffer_of_zero_switches_it_off(algorithm):
    """B36, B39: length 18 of 20, buffer 4: -0.5; halved -0.25; without a buffer 0."""
    for choices, penalty in (
        ({"dapo_overlong_buffer_len": 4}, -0.5),
        ({"dapo_overlong_buffer_len": 4, "dapo_overlong_penalty_factor": 0.5}, -0.25),
        ({}, 0.0),
    ):
        (judged,) = judge_groups([group([1, 0], [18, 1])], algorithm(**choices), AnswerLimit(20))
        assert judged.penalties[0] == penalty


def test_penalties_come_before_advantages(algorithm):
    """Rewards 1 1 with lengths 1 and 20: shaped 1 and 0, so that the long one is worse. Without shaping: equal."""
    assert advantages([group([1, 1], [1, 20])], algorithm(dapo_overlong_buffer_len=4)) == pytest.approx([1, -1])
    assert advantages([group([1, 1], [1, 20])], algorithm()) == [0.0, 0.0]


def test_answers_keep_their_group_their_order_and_their_own_advantage(algorithm):
    judged = judge_groups(
        [group([1, 0], [3, 4], number=7), group([0, 2], [5, 6], number=3)], algorithm(), AnswerLimit(20)
    )
    answers = answers_of(judged, algorithm())
    assert [(one.group_id, len(one.completion.tokens)) for one in answers] == [(7, 3), (7, 4), (3, 5), (3, 6)]
    assert [one.advantage for one in answers] == pytest.approx([1, -1, -1, 1])
    assert [one.prompt.index for one in answers] == [7, 7, 3, 3]


def test_overlong_filtering_takes_truncated_answers_out_after_advantages(algorithm):
    """Rewards 1 0 0 with the last cut: it still counts for the mean (1/3), then leaves the loss."""
    judged = judge_groups([group([1, 0, 0], [2, 2, 20], cut=(2,))], algorithm(), AnswerLimit(20))
    kept = answers_of(judged, algorithm(mask_overlong_truncated=True))
    assert [len(one.completion.tokens) for one in kept] == [2, 2]
    assert kept[0].advantage == pytest.approx(1.414214, abs=1e-6)  # (1 - 1/3) / (sqrt(2) / 3)
    assert len(answers_of(judged, algorithm())) == 3


def test_what_overlong_filtering_leaves_out_is_in_no_denominator(algorithm, table_model, make_trainer):
    """Token losses -A: 2 tokens with A = 1.414 and 2 with -0.707 over 4 tokens: -0.353553; with the third over 24."""
    import math

    import torch

    def loss(choices):
        judged = judge_groups([uniform], algorithm(), AnswerLimit(20))
        trainer = make_trainer(table_model(torch.zeros(64, 64)), choices=choices)
        return trainer.update(answers_of(judged, algorithm(**choices)), 0.0).loss

    plain = group([1, 0, 0], [2, 2, 20], cut=(2,))
    uniform = Group(
        0,
        plain.prompt,
        tuple(
            Completion(one.tokens, (-math.log(64),) * len(one.tokens), "", one.stop_reason) for one in plain.completions
        ),
        plain.scores,
        0,
    )
    root = math.sqrt(2)
    assert loss({"mask_overlong_truncated": True}) == pytest.approx((-2 * root + 2 * root / 2) / 4, abs=1e-5)
    assert loss({}) == pytest.approx((-2 * root + 22 * root / 2) / 24, abs=1e-5)


def test_what_came_of_the_answers_goes_back_to_their_groups(algorithm):
    """The second of the first group was cut: filtering leaves it out, so it has no result."""
    judged = judge_groups([group([1, 0], cut=(1,)), group([0, 1], number=1)], algorithm(), AnswerLimit(20))
    assert by_group(judged, algorithm(mask_overlong_truncated=True), "abc") == [["a", None], ["b", "c"]]
    assert by_group(judged, algorithm(), "abcd") == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize("results", ["ab", "abcd"])
def test_results_of_other_answers_are_refused(algorithm, results):
    judged = judge_groups([group([1, 0], cut=(1,)), group([0, 1], number=1)], algorithm(), AnswerLimit(20))
    with pytest.raises(ValueError, match=f"{len(results)} results for 3 answers"):
        by_group(judged, algorithm(mask_overlong_truncated=True), results)


def test_the_penalty_ends_where_the_context_cut_the_answer(algorithm):
    """A context of 24 leaves 14 tokens beside a prompt of 10; the buffer of 4 begins at 10: 12 is half-way."""
    choices = algorithm(dapo_overlong_buffer_len=4)
    (judged,) = judge_groups([group([1, 0, 1], [10, 12, 14], prompt=(5,) * 10)], choices, AnswerLimit(20, 24))
    assert judged.penalties == (0.0, -0.5, -1.0)
