"""Which reward a run uses and what its workers may spend."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dapo.errors import ConfigError
from dapo.rewards.built_in import BUILT_IN
from dapo.wording import nearest

MOST_WORKERS = 1024
"""All are started at once: many more would take the machine down before the first answer."""


@dataclass(frozen=True)
class RewardSettings:
    """How answers are scored. Exactly one of `reward` and `reward_fn_path` is given."""

    reward: str | None = None
    """`math` (last boxed or "Answer:" answer), `exact_number` (last number), `countdown`, or your own `file.py`."""
    reward_fn_path: str | None = None
    """Your own reward, as `file.py` or `file.py:function`."""
    reward_workers: int | None = None
    """Processes that score answers side by side. Default: the processor cores minus one, at least 1."""
    reward_timeout_s: float = 10.0
    """Seconds that scoring one answer may take; after that its worker is killed and the answer scores 0."""
    reward_memory_mb: int = 2048
    """Memory (MiB) that a worker may take beyond what it has once the reward is loaded; then as above."""

    def __post_init__(self) -> None:
        _check_choice(self.reward, self.reward_fn_path)
        if self.reward_workers is not None and not 1 <= self.reward_workers <= MOST_WORKERS:
            raise ConfigError(
                f"reward_workers is {self.reward_workers}",
                fix=f"give a number of processes from 1 to {MOST_WORKERS}, or leave it out to use the cores minus one",
            )
        if not (math.isfinite(self.reward_timeout_s) and self.reward_timeout_s > 0):
            raise ConfigError(
                f"reward_timeout_s is {self.reward_timeout_s}",
                fix="give the seconds that one answer may take, such as 10",
            )
        if self.reward_memory_mb < 1:
            raise ConfigError(
                f"reward_memory_mb is {self.reward_memory_mb}",
                fix="give the MiB that a worker may take, such as 2048",
            )

    @property
    def workers(self) -> int:
        """The number of worker processes, with the default worked out for this machine."""
        if self.reward_workers is not None:
            return self.reward_workers
        return max(1, _usable_cores() - 1)


def own_reward(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """A reward that names a Python file is a person's own: `reward = "reward.py"` means `reward_fn_path`."""
    reward = given.get("reward")
    if not isinstance(reward, str) or ".py" not in reward or given.get("reward_fn_path") is not None:
        return given
    return {**given, "reward": None, "reward_fn_path": reward}


def _check_choice(reward: str | None, reward_fn_path: str | None) -> None:
    names = ", ".join(sorted(BUILT_IN))
    if reward is None and reward_fn_path is None:
        raise ConfigError(
            "no reward is set: both reward and reward_fn_path are missing",
            fix=f"set reward to one of {names}, or reward_fn_path to file.py[:function]",
        )
    if reward is not None and reward_fn_path is not None:
        raise ConfigError(
            f"reward is {reward!r} and reward_fn_path is {reward_fn_path!r}: a run has one reward",
            fix="remove one of the two",
        )
    if reward is not None and reward not in BUILT_IN:
        guess = nearest(reward, BUILT_IN)
        hint = f"did you mean {guess!r}? " if guess else ""
        raise ConfigError(
            f"reward is {reward!r}, which is not a built-in reward",
            fix=f"{hint}the built-in rewards are {names}; your own goes into reward_fn_path",
        )
    if reward_fn_path is not None and not reward_fn_path.strip():
        raise ConfigError("reward_fn_path is empty", fix="give file.py or file.py:function")


def _usable_cores() -> int:
    """Cores that this process may use: a container's share where the system tells it."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
