"""Teach a language model to reason with verifiable rewards: DAPO and its relatives.

The names below are for people who have their own training loop; `dapo train` is for everyone else. They are
loaded on first use, so that importing `dapo` costs nothing (reward workers do it by the dozen).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dapo.algorithms.advantages import compute_group_advantages
    from dapo.algorithms.dapo_loss import DAPOConfig, DAPOLoss
    from dapo.algorithms.group_filters import is_valid_dapo_group
    from dapo.algorithms.reward_shaping import compute_rule_reward, soft_overlong_punishment
    from dapo.errors import DapoError
    from dapo.sampling.library import DAPODynamicSampler

__version__ = "0.1.0"

_HOMES = {
    "DAPOConfig": "dapo.algorithms.dapo_loss",
    "DAPODynamicSampler": "dapo.sampling.library",
    "DAPOLoss": "dapo.algorithms.dapo_loss",
    "DapoError": "dapo.errors",
    "compute_group_advantages": "dapo.algorithms.advantages",
    "compute_rule_reward": "dapo.algorithms.reward_shaping",
    "is_valid_dapo_group": "dapo.algorithms.group_filters",
    "soft_overlong_punishment": "dapo.algorithms.reward_shaping",
}

__all__ = [
    "DAPOConfig",
    "DAPODynamicSampler",
    "DAPOLoss",
    "DapoError",
    "compute_group_advantages",
    "compute_rule_reward",
    "is_valid_dapo_group",
    "soft_overlong_punishment",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dapo' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
