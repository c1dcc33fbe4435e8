from typing import Any

import pytest

from dapo.errors import SamplingLimitError
from dapo.records import Completion, Group, Prompt, Score
from dapo.sampling.alike import alike


def group(answer: Any, rewards: list[float], text: str = "so it is 72") -> Group:
    completions = tuple(Completion((1,), (0.0,), text, "stop") for _ in rewards)
    return Group(0, Prompt(0, "?", (1,), answer=answer), completions, tuple(Score(r, {}) for r in rewards), 0)


def test_rewards_that_are_all_the_same_are_shown_with_a_reference_and_an_answer() -> None:
    words = alike([group("#### 72", [0.0, 0.0]), group("7", [0.0])])
    assert words == (
        "every reward so far is 0: compare by eye a reference, '#### 72', "
        "with the end of an answer to it, 'so it is 72'"
    )


def test_nothing_is_said_of_rewards_that_differ_or_of_none() -> None:
    assert alike([group("7", [0.0]), group("8", [1.0])]) == ""
    assert alike([]) == ""


def test_a_long_reference_is_shown_by_its_ends() -> None:
    words = alike([group("a" * 500 + "#### 72", [1.0], text="x" * 500)])
    assert "every reward so far is 1" in words
    assert "#### 72'" in words
    assert len(words) < 400


def test_out_of_rounds_with_one_reward_throughout_shows_an_example(script: Any, sampler_of: Any) -> None:
    with pytest.raises(SamplingLimitError) as caught:
        sampler_of(script("w"), batch_size=1, dapo_max_num_gen_batches=2).next_batch(0)
    assert "every reward so far is" in str(caught.value.fix)
    with pytest.raises(SamplingLimitError) as caught:
        sampler_of(script("wr"), batch_size=1, dapo_max_num_gen_batches=2).next_batch(0)
    assert "every reward so far is" not in str(caught.value.fix)
