"""Reference answers as public data sets write them: read, or refused before the run."""

import numpy as np
import pytest

from dapo.errors import RewardError
from dapo.rewards.built_in import ANSWER_CHECKS
from dapo.rewards.exact_number import require_exact_number
from dapo.rewards.math_answers import math_score
from dapo.rewards.references import math_solutions

GSM8K = "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\nShe sold 48+24 = <<48+24=72>>72 clips altogether.\n#### 72"


@pytest.mark.parametrize(
    ("answer", "solutions"),
    [
        (GSM8K, ["72"]),
        ("Answer: 34", ["34"]),
        ("The answer is $\\frac{1}{2}$.", ["$\\frac{1}{2}$."]),
        ("We add and get $\\boxed{34}$.", ["34"]),
        ('["34", "35"]', ["34", "35"]),  # a list that a table kept as text
        ([34, None, " "], ["34"]),
        (np.array(["34"]), ["34"]),
        (np.int64(34), ["34"]),
        ("\\text{east}", ["\\text{east}"]),
        ("\\left\\{x=1 \\right.", ["\\left\\{x=1 \\right."]),
        ("x=1 \\text{ or } x=2", ["x=1 \\text{ or } x=2"]),
    ],
)
def test_what_a_reference_states_is_read(answer: object, solutions: list[str]) -> None:
    assert math_solutions(answer) == solutions


@pytest.mark.parametrize("answer", ["\\boxed{}", "\\text{}", "$$", "$ $", ".", "\\boxed{", "**", "\\text{ }", "{}"])
def test_a_reference_that_is_empty_once_read_is_refused(answer: str) -> None:
    for reward in ("math", "exact_number", "countdown"):
        with pytest.raises(RewardError, match="the answer"):
            ANSWER_CHECKS[reward](answer)


@pytest.mark.parametrize("reward", ["math", "exact_number", "countdown"])
@pytest.mark.parametrize(
    "answer",
    [
        {"ground_truth": "34", "style": "rule"},
        [{"answer": "34"}],
        '{"ground_truth": "34"}',
        [["34"]],
        b"34",
        "Natalia sold 24 clips in May.\nAltogether she sold 72 clips.",  # a solution without a final answer
        "The function is " + "very " * 50 + "odd",
        "\\frac{1}{2",
    ],
)
def test_a_reference_that_nothing_can_match_is_refused_by_every_built_in_reward(reward: str, answer: object) -> None:
    with pytest.raises(RewardError, match="the answer") as caught:
        ANSWER_CHECKS[reward](answer)
    assert caught.value.fix
    assert len(str(caught.value)) < 400


def test_a_mapping_is_refused_by_its_keys() -> None:
    with pytest.raises(RewardError, match="is a mapping with 'ground_truth', 'style'"):
        math_solutions({"ground_truth": "34", "style": "rule"})


def test_exact_number_reads_what_a_solution_ends_with() -> None:
    assert [require_exact_number(answer) for answer in (GSM8K, "Answer: 34", "\\boxed{-5}", "-$5")] == [72, 34, -5, -5]
    assert math_score("so \\boxed{72}", GSM8K).value == 1.0
