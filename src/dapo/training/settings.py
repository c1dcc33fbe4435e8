"""How the weights are updated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dapo.errors import ConfigError


@dataclass(frozen=True)
class TrainingSettings:
    """Updating the weights: AdamW."""

    lr: float = 1e-6
    """Learning rate."""
    lr_warmup_steps: int = 0
    """Updates over which the learning rate rises in a line from 0."""
    lr_schedule: Literal["constant", "cosine"] = "constant"
    """After the warm-up: constant, or a half cosine down to min_lr at max_steps."""
    min_lr: float | None = None
    """Cosine schedule: where it ends (0)."""
    adam_beta1: float = 0.9
    """Decay of the mean of gradients."""
    adam_beta2: float = 0.999
    """Decay of the mean of squared gradients."""
    weight_decay: float = 0.01
    """Decoupled weight decay."""
    grad_clip_norm: float = 1.0
    """Gradients are scaled down to this global norm."""
    mini_bs: int = 16
    """Answers that go into one pass."""
    gradient_accumulation_steps: int = 1
    """Passes that go into one optimizer step."""
    max_tokens_per_pass: int = 16384
    """A pass with more packed tokens is split to save memory; the result stays the same."""
    max_skipped_updates: int = 3
    """A step whose loss or gradient is not finite is skipped; this many in a row end the run."""

    def __post_init__(self) -> None:
        for name in ("mini_bs", "gradient_accumulation_steps", "max_tokens_per_pass", "max_skipped_updates"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", fix="use at least 1")
        for name in ("lr", "weight_decay", "lr_warmup_steps", "min_lr"):
            value = getattr(self, name)
            if value is not None and not (value >= 0 and math.isfinite(value)):
                raise ConfigError(f"{name} is {value}", fix="use a number from 0 up")
        for name in ("adam_beta1", "adam_beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", fix="use a number from 0 to below 1, such as 0.9")
        if not self.grad_clip_norm > 0:
            raise ConfigError(f"grad_clip_norm is {self.grad_clip_norm}", fix="use a number above 0, such as 1.0")
        if self.min_lr is not None and self.lr_schedule != "cosine":
            raise ConfigError(
                f"min_lr is {self.min_lr} but lr_schedule is {self.lr_schedule}, which never falls",
                fix='leave min_lr out, or set lr_schedule = "cosine"',
            )
        if (self.min_lr or 0) > self.lr:
            raise ConfigError(f"min_lr is {self.min_lr}, above lr {self.lr}", fix="make min_lr at most lr")

    def optimizer_steps(self, answers: int) -> int:
        """Optimizer steps that a batch of so many answers makes."""
        return math.ceil(answers / (self.mini_bs * self.gradient_accumulation_steps))


def learning_rate(settings: TrainingSettings, step: int, total: int | None) -> float:
    """The rate of update `step` (from 0) out of `total`. Every optimizer step of an update has the same.

    The first of w warm-up updates has lr / (w + 1), so that none is wasted at 0.
    """
    if step < settings.lr_warmup_steps:
        return settings.lr * (step + 1) / (settings.lr_warmup_steps + 1)
    if settings.lr_schedule == "constant":
        return settings.lr
    if total is None:
        raise ConfigError("lr_schedule is cosine but max_steps is not set", fix="set max_steps: the cosine ends there")
    span = max(total - settings.lr_warmup_steps, 1)
    done = min((step - settings.lr_warmup_steps) / span, 1.0)
    low = settings.min_lr or 0.0
    return low + (settings.lr - low) * 0.5 * (1 + math.cos(math.pi * done))
