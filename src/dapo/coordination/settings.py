"""How long a run goes, where it is kept, and on what it runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dapo.errors import ConfigError

_GPU = re.compile("[0-9]{1,4}")


@dataclass(frozen=True)
class RunSettings:
    """The run as a whole."""

    save_path: str | None = None
    """The run folder (runs/<date-time>-<algo> if not set)."""
    epochs: int | None = None
    """Most times that the data is gone through. Not set: as often as max_steps needs, or once without max_steps."""
    max_steps: int | None = None
    """Most updates. With epochs given too, the run ends at whichever comes first."""
    max_rollout_tokens: int | None = None
    """No update begins once the answers had so many tokens, dropped ones included: for comparisons at equal cost."""
    seed: int = 1
    """Decides the order of the data and every token drawn."""
    eval_dataset_path: str | None = None
    """Held-out data, measured before the first update, after the last, and every eval_interval."""
    eval_interval: int | None = None
    """Updates between two measurements on the held-out data."""
    eval_n: int = 4
    """Answers per held-out prompt."""
    save_interval: int = 10
    """Updates between two checkpoints; 0: only when the run ends or is stopped."""
    keep_checkpoints: int = 2
    """How many of the newest checkpoints are kept."""
    keep_best: bool = False
    """Also save and keep the checkpoint with the best held-out accuracy."""
    train_devices: str = "auto"
    """Devices to train on: `auto`, `cpu`, or the number of a GPU."""
    world_size: int = 1
    """Processes that train. More than 1 is not built yet."""
    tp_size: int = 1
    """Tensor-parallel processes. More than 1 is not built yet."""
    agent_fn: str | None = None
    """Agentic rollouts, which are not built yet."""

    def __post_init__(self) -> None:
        for name in ("epochs", "max_steps", "max_rollout_tokens", "eval_interval", "eval_n", "keep_checkpoints"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}", fix="use at least 1")
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}", fix="use 0 or a positive number")
        if self.eval_interval is not None and self.eval_dataset_path is None:
            raise ConfigError(
                f"eval_interval is {self.eval_interval} but eval_dataset_path is not set",
                fix="name held-out data, or leave eval_interval out",
            )
        if self.save_interval < 0:
            raise ConfigError(f"save_interval is {self.save_interval}", fix="use a number of updates, or 0")
        if self.keep_best and self.eval_dataset_path is None:
            raise ConfigError(
                "keep_best is on but eval_dataset_path is not set, so nothing tells which is best",
                fix="name held-out data, or leave keep_best out",
            )
        for name in ("world_size", "tp_size"):
            if getattr(self, name) != 1:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}, but this version trains in one process",
                    fix=f"use --{name.replace('_', '-')} 1",
                )
        if self.train_devices.startswith("mlx"):
            raise ConfigError(
                "train_devices is mlx, but there is no MLX backend", fix="use cpu, or the number of a GPU"
            )
        if self.train_devices not in ("auto", "cpu") and not _GPU.fullmatch(self.train_devices):
            raise ConfigError(f"train_devices is {self.train_devices!r}", fix="use auto, cpu, or one number such as 0")

    @property
    def passes(self) -> int | None:
        """Times that the data is gone through at most: `epochs`, else without end where another setting ends the run,
        else once."""
        if self.epochs is not None:
            return self.epochs
        return 1 if self.max_steps is None and self.max_rollout_tokens is None else None
