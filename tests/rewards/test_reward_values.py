import json
from fractions import Fraction

import numpy as np
import pytest
import torch

from dapo.errors import RewardError
from dapo.records import Score
from dapo.rewards.values import to_score, to_scores

WHERE = "row 12, sample 3"


@pytest.mark.parametrize(
    "one", [1, True, 1.0, Fraction(1), np.float32(1), np.bool_(True), np.array(1), torch.tensor(1.0)]
)
def test_every_kind_of_number_is_the_same_json_number(one: object) -> None:
    """B61."""
    score = to_score(one, WHERE)
    assert score == Score(1.0)
    assert json.dumps(score.value) == "1.0"


def test_a_dict_gives_score_and_numeric_metrics() -> None:
    """B61."""
    assert to_score({"score": 1.0, "acc": True, "pred": "7"}, WHERE) == Score(1.0, {"acc": 1.0})


def test_a_score_of_zero_is_a_score() -> None:
    """B48: 0.0 and False are values, not missing ones."""
    assert to_score({"score": 0.0, "reward": 1.0, "acc": False}, WHERE) == Score(0.0, {"reward": 1.0, "acc": 0.0})


@pytest.mark.parametrize(
    "bad",
    [None, float("nan"), float("inf"), "1.0", [1.0], np.array([1.0]), torch.tensor([1.0]), 1j, 10**400,
     {"acc": 1.0}, {"score": None}, {"score": 1.0, "acc": float("nan")}, Score(1.0)],
)  # fmt: skip
def test_what_is_no_finite_number_names_row_and_sample(bad: object) -> None:
    """B47, B61."""
    with pytest.raises(RewardError, match="row 12, sample 3"):
        to_score(bad, WHERE)


def test_a_dict_without_score_lists_its_keys() -> None:
    with pytest.raises(RewardError, match=r"without 'score'; its keys are \['acc', 'reward'\]"):
        to_score({"reward": 1, "acc": 1}, WHERE)


def test_a_batch_needs_one_value_for_each_completion() -> None:
    places = ["row 4, sample 0", "row 4, sample 1"]
    assert to_scores([1, 0.5], places) == [Score(1.0), Score(0.5)]
    assert to_scores(torch.tensor([1.0, 0.5]), places) == [Score(1.0), Score(0.5)]
    with pytest.raises(RewardError, match=r"row 4, sample 0: .* 3 values for 2 completions"):
        to_scores([1, 0, 0], places)
    with pytest.raises(RewardError, match="instead of a list"):
        to_scores(1.0, places)
    with pytest.raises(RewardError, match=r"row 4, sample 1: the reward is None"):
        to_scores([1.0, None], places)
