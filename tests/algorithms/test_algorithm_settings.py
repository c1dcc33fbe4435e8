"""The registry, and how the settings become the choices of one run."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dapo.algorithms.losses import Clip
from dapo.algorithms.registry import ALGORITHMS
from dapo.algorithms.settings import Algorithm, AlgorithmSettings
from dapo.errors import ConfigError


def choose(**settings: Any) -> Algorithm:
    return Algorithm.of(AlgorithmSettings(**settings))


def refusal(**settings: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        choose(**settings)
    return caught.value


def test_registry_holds_each_algorithm_under_its_own_name() -> None:
    assert list(ALGORITHMS) == ["dapo", "grpo", "gspo", "dr_grpo"]
    for name, spec in ALGORITHMS.items():
        assert spec.name == name
        assert spec.summary
        assert "\n" not in spec.summary


def test_dapo_is_what_its_paper_says() -> None:
    assert choose() == Algorithm(
        name="dapo",
        ratio="rollout",
        ratio_level="token",
        clip=Clip(0.2, 0.28, None),
        aggregation="token-mean",
        scale_advantages="group",
        adv_eps=1e-8,
        adv_correction=0,
        dynamic_sampling=True,
        mask_overlong_truncated=False,
        overlong_buffer_len=0,
        overlong_penalty_factor=1.0,
    )


@pytest.mark.parametrize(
    ("algo", "level", "aggregation", "scale"),
    [
        ("grpo", "token", "seq-mean-token-mean", "group"),
        ("gspo", "sequence", "seq-mean-token-mean", "group"),
        ("dr_grpo", "token", "seq-mean-token-sum-norm", "none"),
    ],
)
def test_baselines_keep_the_on_policy_ratio_without_a_clip(algo: str, level: str, aggregation: str, scale: str) -> None:
    algorithm = choose(algo=algo)
    assert (algorithm.ratio, algorithm.clip, algorithm.dynamic_sampling) == ("on_policy", None, False)
    assert (algorithm.ratio_level, algorithm.aggregation, algorithm.scale_advantages) == (level, aggregation, scale)


# Other than the widths these must not come to: dapo's .2/.28.
@pytest.mark.parametrize(
    ("algo", "clip"), [("grpo", Clip(0.2, 0.2)), ("gspo", Clip(3e-4, 4e-4)), ("dr_grpo", Clip(0.2, 0.2))]
)
def test_the_real_ratio_brings_each_baselines_own_clip(algo: str, clip: Clip) -> None:
    algorithm = choose(algo=algo, ratio="rollout")
    assert (algorithm.ratio, algorithm.clip) == ("rollout", clip)


@pytest.mark.parametrize(
    ("settings", "field", "value"),
    [
        ({"dapo_clip_eps_low": 0.1}, "clip", Clip(0.1, 0.28)),
        ({"dapo_clip_eps_high": 0.3}, "clip", Clip(0.2, 0.3)),
        ({"dapo_clip_eps_high": 0.2}, "clip", Clip(0.2, 0.2)),
        ({"clip_ratio_c": 10.0}, "clip", Clip(0.2, 0.28, 10.0)),
        ({"algo": "grpo", "ratio": "rollout", "clip_eps_low": 0.1}, "clip", Clip(0.1, 0.2)),
        ({"algo": "grpo", "ratio": "rollout", "clip_eps_high": 0.3}, "clip", Clip(0.2, 0.3)),
        ({"algo": "gspo", "ratio": "rollout", "clip_ratio_c": 3.0}, "clip", Clip(3e-4, 4e-4, 3.0)),
        ({"loss_aggregation": "seq-mean-token-sum"}, "aggregation", "seq-mean-token-sum"),
        ({"scale_advantages": "batch"}, "scale_advantages", "batch"),
        ({"algo": "dr_grpo", "scale_advantages": "group"}, "scale_advantages", "group"),
        ({"adv_eps": 1e-6}, "adv_eps", 1e-6),
        ({"adv_correction": 1}, "adv_correction", 1),
        ({"dynamic_sampling": False}, "dynamic_sampling", False),
        ({"algo": "grpo", "dynamic_sampling": True}, "dynamic_sampling", True),
        ({"mask_overlong_truncated": True}, "mask_overlong_truncated", True),
        ({"dapo_overlong_buffer_len": 4}, "overlong_buffer_len", 4),
        ({"dapo_overlong_penalty_factor": 0.5}, "overlong_penalty_factor", 0.5),
    ],
)
def test_each_setting_acts(settings: dict[str, object], field: str, value: object) -> None:
    algorithm = choose(**settings)
    assert getattr(algorithm, field) == value
    assert algorithm != choose(**{key: settings[key] for key in ("algo", "ratio") if key in settings})


@pytest.mark.parametrize(
    ("settings", "problem", "fix"),
    [
        ({"algo": "dappo"}, "algo is 'dappo'", "did you mean dapo?"),
        ({"algo": "ppo9000"}, "algo is 'ppo9000'", "known are dapo, grpo, gspo, dr_grpo"),
        ({"ratio": "on_policy"}, "ratio is 'on_policy' under algo dapo", "choose --algo grpo"),
        ({"dapo_clip_eps_low": 0.0}, "dapo_clip_eps_low is 0.0", "such as 0.2"),
        ({"dapo_clip_eps_low": 1.0, "dapo_clip_eps_high": 2.0}, "dapo_clip_eps_low is 1.0", "such as 0.2"),
        ({"dapo_clip_eps_low": math.nan}, "dapo_clip_eps_low is nan", "such as 0.2"),
        ({"dapo_clip_eps_high": 0.1}, "dapo_clip_eps_high is 0.1 but dapo_clip_eps_low is 0.2", "default is 0.28"),
        ({"dapo_clip_eps_low": 0.3}, "dapo_clip_eps_high is 0.28 but dapo_clip_eps_low is 0.3", "at least"),
        ({"dapo_clip_eps_high": math.inf}, "dapo_clip_eps_high is inf", "default is 0.28"),
        ({"dapo_clip_eps_high": math.nan}, "dapo_clip_eps_high is nan", "default is 0.28"),
        ({"clip_eps_low": 0.2}, "clip_eps_low is 0.2 but algo is dapo", "use dapo_clip_eps_low"),
        ({"clip_eps_high": 0.2}, "clip_eps_high is 0.2 but algo is dapo", "use dapo_clip_eps_high"),
        (
            {"algo": "grpo", "ratio": "rollout", "dapo_clip_eps_low": 0.2},
            "dapo_clip_eps_low is 0.2 but algo is grpo",
            "use clip_eps_low",
        ),
        (
            {"algo": "gspo", "ratio": "rollout", "dapo_clip_eps_high": 0.2},
            "dapo_clip_eps_high is 0.2 but algo is gspo",
            "use clip_eps_high",
        ),
        ({"algo": "grpo", "clip_eps_low": 0.2}, "clip_eps_low is 0.2 but ratio is 'on_policy'", 'ratio = "rollout"'),
        ({"algo": "gspo", "clip_eps_high": 0.2}, "clip_eps_high is 0.2 but ratio is 'on_policy'", 'ratio = "rollout"'),
        (
            {"algo": "dr_grpo", "clip_ratio_c": 3.0},
            "clip_ratio_c is 3.0 but ratio is 'on_policy'",
            "leave clip_ratio_c",
        ),
        (
            {"algo": "grpo", "ratio": "rollout", "clip_eps_high": 0.1},
            "clip_eps_high is 0.1 but clip_eps_low is 0.2",
            "",
        ),
        ({"clip_ratio_c": 1.0}, "clip_ratio_c is 1.0", "above 1"),
        ({"clip_ratio_c": math.nan}, "clip_ratio_c is nan", "above 1"),
        ({"clip_ratio_c": math.inf}, "clip_ratio_c is inf", "above 1"),
        ({"adv_eps": -1.0}, "adv_eps is -1.0", "1e-8"),
        ({"adv_eps": math.nan}, "adv_eps is nan", "1e-8"),
        ({"adv_eps": math.inf}, "adv_eps is inf", "1e-8"),
        ({"adv_correction": 2}, "adv_correction is 2", "0 or 1"),
        ({"adv_correction": -1}, "adv_correction is -1", "0 or 1"),
        ({"dapo_overlong_buffer_len": -1}, "dapo_overlong_buffer_len is -1", "0 to switch"),
        ({"dapo_overlong_penalty_factor": -0.5}, "dapo_overlong_penalty_factor is -0.5", "from 0 up"),
        ({"dapo_overlong_penalty_factor": math.nan}, "dapo_overlong_penalty_factor is nan", "from 0 up"),
    ],
)
def test_each_refusal_names_the_setting_the_value_and_the_fix(
    settings: dict[str, object], problem: str, fix: str
) -> None:
    error = refusal(**settings)
    assert problem in error.problem
    assert fix in str(error.fix)
