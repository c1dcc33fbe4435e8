import os

import pytest

from dapo.errors import ConfigError
from dapo.rewards.built_in import ANSWER_CHECKS, BUILT_IN
from dapo.rewards.settings import RewardSettings


def test_both_or_neither_reward_is_refused() -> None:
    with pytest.raises(ConfigError, match="no reward is set"):
        RewardSettings()
    with pytest.raises(ConfigError, match=r"reward is 'math' and reward_fn_path is 'r\.py'"):
        RewardSettings(reward="math", reward_fn_path="r.py")


def test_unknown_built_in_reward_names_the_nearest_and_all() -> None:
    with pytest.raises(ConfigError) as caught:
        RewardSettings(reward="mth")
    assert "reward is 'mth'" in caught.value.problem
    assert "did you mean 'math'?" in str(caught.value.fix)
    assert "exact_number, math" in str(caught.value.fix)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reward_workers", 0),
        ("reward_timeout_s", 0.0),
        ("reward_timeout_s", -1.0),
        ("reward_timeout_s", float("nan")),
        ("reward_timeout_s", float("inf")),
        ("reward_memory_mb", 0),
    ],
)
def test_a_limit_that_cannot_act_is_refused_by_name_and_value(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value}"):
        RewardSettings(reward="math", **{name: value})


def test_workers_default_to_the_usable_cores_minus_one_but_at_least_one() -> None:
    assert RewardSettings(reward="math").workers == max(1, len(os.sched_getaffinity(0)) - 1)
    assert RewardSettings(reward="math", reward_workers=3).workers == 3


def test_every_built_in_reward_also_checks_its_answers() -> None:
    assert BUILT_IN.keys() == ANSWER_CHECKS.keys()
