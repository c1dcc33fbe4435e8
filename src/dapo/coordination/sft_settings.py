"""The settings of `dapo sft`: those of `dapo train` that mean something without rollouts, and a few of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dapo.config import Config
from dapo.coordination.settings import RunSettings
from dapo.data.settings import DataSettings
from dapo.errors import ConfigError
from dapo.models.settings import ModelSettings
from dapo.training.settings import TrainingSettings

NEVER_ACTS: Mapping[str, str] = {
    "gradient_accumulation_steps": "batch_size demonstrations make one optimizer step, in passes of mini_bs",
    "max_rollout_tokens": "supervised training generates nothing",
    "eval_n": "held-out demonstrations are not answered but scored",
    "keep_best": "the best checkpoint is told by accuracy, which supervised training does not measure",
    "world_size": "supervised training runs in one process",
    "tp_size": "supervised training runs in one process",
    "agent_fn": "supervised training generates nothing",
}
"""Settings of the shared tables that have no meaning here, with the reason."""


@dataclass(frozen=True)
class SftSettings:
    """Learning from demonstrations."""

    batch_size: int = 32
    """Demonstrations of one update, which is one optimizer step; passes of mini_bs save memory."""
    solution_key: str = "solution"
    """The column that holds the demonstration: a string, learned as the answer to the row's prompt."""
    max_tokens: int | None = None
    """Demonstrations whose prompt and answer have more tokens are dropped (the model's context if not set)."""
    shuffle: bool = True
    """Take the rows in an order of its own in each epoch, decided by seed; otherwise as they stand."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size is {self.batch_size}", fix="use at least 1")
        if not self.solution_key:
            raise ConfigError("solution_key is empty", fix="name the column with the demonstrations")
        if self.max_tokens is not None and self.max_tokens < 2:
            raise ConfigError(
                f"max_tokens is {self.max_tokens}", fix="use at least 2: a token of the prompt, and the end token"
            )


@dataclass(frozen=True)
class SftConfig(Config):
    """Everything that decides a run of `dapo sft`."""

    COMMAND = "sft"
    DEFAULTS: ClassVar[Mapping[str, Any]] = {"lr": 2e-5, "save_interval": 100}
    """Supervised updates take larger steps than reinforced ones, and are made many times faster."""

    model: ModelSettings
    data: DataSettings
    sft: SftSettings
    training: TrainingSettings
    run: RunSettings

    def idle(self) -> dict[str, str]:
        if self.sft.shuffle:
            return dict(NEVER_ACTS)
        return {**NEVER_ACTS, "seed": "shuffle is off, so nothing is drawn"}
