"""When a run warns of itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dapo.errors import ConfigError


@dataclass(frozen=True)
class AlarmSettings:
    """Warnings in the log when training goes wrong. A threshold of 0 switches its alarm off."""

    alarm_window: int = 5
    """Updates whose mean an alarm looks at."""
    alarm_interval: int = 20
    """The same alarm is given at most once in this many updates."""
    alarm_entropy: float = 0.2
    """Entropy fell below this share of where it began."""
    alarm_clip_share: float = 0.2
    """More than this share of the trained tokens was clipped."""
    alarm_informative_share: float = 0.1
    """Less than this share of the generated groups disagreed."""
    alarm_length_growth: float = 2.0
    """Answers grew to more than this many times their length one window before; above 1."""
    alarm_mismatch_growth: float = 5.0
    """Rollout and training log-probabilities differ by more than this many times as much as at the start; above 1."""

    def __post_init__(self) -> None:
        for name in ("alarm_window", "alarm_interval"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", fix="use a number of updates, at least 1")
        for name in ("alarm_entropy", "alarm_clip_share", "alarm_informative_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", fix="use a share from 0 (off) to 1")
        for name in ("alarm_length_growth", "alarm_mismatch_growth"):
            value = getattr(self, name)
            if value != 0 and not 1 < value < math.inf:
                raise ConfigError(f"{name} is {value}", fix="use a factor above 1, or 0 to switch the alarm off")
