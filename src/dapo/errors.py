"""Every error that `dapo` raises on purpose.

    DapoError                     something stopped, and we can say what and how to mend it
    ├── ConfigError               a setting is unknown, malformed, contradictory or cannot act
    ├── DataError                 a data file is missing, unreadable, empty or has a bad row
    ├── ModelError                a model folder or hub id cannot be loaded or used
    ├── RewardError               a reward function does not import or breaks its contract
    ├── SamplingLimitError        too few groups disagreed within the allowed rounds
    ├── RolloutError              a rollout engine broke its contract
    ├── CheckpointError           a checkpoint is missing, damaged or belongs to another run
    └── TrainingError             the update itself went wrong (non-finite loss or gradient)

Each carries the problem and, where one is known, the fix. The command line prints both and exits with
`exit_code`: 2 when a person can mend the input, 1 when the run itself failed.
"""

from __future__ import annotations


class DapoError(Exception):
    """What went wrong, and how to mend it."""

    exit_code = 1

    def __init__(self, problem: str, *, fix: str | None = None) -> None:
        super().__init__(problem if fix is None else f"{problem}\n  fix: {fix}")
        self.problem = problem
        self.fix = fix

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.problem, self.fix)


def _rebuild(kind: type[DapoError], problem: str, fix: str | None) -> DapoError:
    """Errors cross process borders (reward workers), where keyword arguments would be lost."""
    return kind(problem, fix=fix)


class ConfigError(DapoError, ValueError):
    exit_code = 2


class DataError(DapoError, ValueError):
    exit_code = 2


class ModelError(DapoError, ValueError):
    exit_code = 2


class RewardError(DapoError, ValueError):
    exit_code = 2


class CheckpointError(DapoError):
    exit_code = 2


class SamplingLimitError(DapoError):
    exit_code = 1


class RolloutError(DapoError):
    exit_code = 1


class TrainingError(DapoError):
    exit_code = 1
