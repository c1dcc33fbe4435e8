"""The library layer's settings: each acts, and what cannot act is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from dapo.algorithms.dapo_loss import DAPOConfig, DAPOLoss
from dapo.errors import ConfigError


def test_defaults_are_the_papers_clip_and_the_documented_lengths() -> None:
    config = DAPOConfig()
    assert (config.eps_low, config.eps_high) == (0.2, 0.28)
    assert (config.group_size, config.max_length, config.cache_length) == (16, 4096, 512)
    assert config.adv_eps == 1e-8
    assert config.use_token_level_loss
    assert not config.mask_overlong_truncated
    assert DAPOLoss().config == config


def test_group_size_decides_who_is_compared_with_whom() -> None:
    """[1,0 | 1,1]: +-1 and zeros. As one group of four, mean .75, std sqrt(3)/4: [1,1,1,-3]/sqrt 3."""
    rewards = torch.tensor([1.0, 0.0, 1.0, 1.0])
    assert DAPOConfig(group_size=2).advantages(rewards).tolist() == pytest.approx([1.0, -1.0, 0.0, 0.0])
    third = 1 / 3**0.5
    assert DAPOConfig(group_size=4).advantages(rewards).tolist() == pytest.approx([third, -3 * third, third, third])


def test_adv_eps_is_added_to_the_deviation() -> None:
    """[1,0]: +-.5/(.5 + .5)."""
    assert DAPOConfig(group_size=2, adv_eps=0.5).advantages(torch.tensor([1.0, 0.0])).tolist() == [0.5, -0.5]


def test_max_length_and_cache_length_shape_the_reward() -> None:
    """18 tokens: halfway through a buffer of 4 before 20; three quarters through 8; free before 30."""
    right, length = torch.tensor([True, False]), torch.tensor([18, 18])
    assert DAPOConfig(max_length=20, cache_length=4).shaped_rewards(right, length).tolist() == [0.5, -1.5]
    assert DAPOConfig(max_length=20, cache_length=8).shaped_rewards(right, length).tolist() == [0.25, -1.75]
    assert DAPOConfig(max_length=30, cache_length=4).shaped_rewards(right, length).tolist() == [1.0, -1.0]
    assert DAPOConfig(max_length=20, cache_length=0).shaped_rewards(right, length).tolist() == [1.0, -1.0]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"eps_low": 0.0}, "eps_low is 0.0"),
        ({"eps_low": 1.0}, "eps_low is 1.0"),
        ({"eps_low": math.nan}, "eps_low is nan"),
        ({"eps_low": 0.2, "eps_high": 0.1}, "eps_high is 0.1 but eps_low is 0.2"),
        ({"eps_high": math.nan}, "eps_high is nan"),
        ({"eps_high": math.inf}, "eps_high is inf"),
        ({"group_size": 1}, "group_size is 1"),
        ({"max_length": 512}, "cache_length is 512 but max_length is 512"),
        ({"cache_length": -1}, "cache_length is -1"),
        ({"adv_eps": -1e-8}, "adv_eps is -1e-08"),
        ({"adv_eps": math.nan}, "adv_eps is nan"),
        ({"adv_eps": math.inf}, "adv_eps is inf"),
    ],
)
def test_what_cannot_act_is_refused_by_name_and_value(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DAPOConfig(**options)
    assert problem in caught.value.problem
    assert caught.value.fix
