"""What is measured, and how the answers are drawn."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields

from dapo.data.settings import DataSettings
from dapo.errors import ConfigError
from dapo.models.settings import ModelSettings
from dapo.rewards.settings import RewardSettings
from dapo.rollout.settings import LEAST_TEMPERATURE, Sampling

_GPU = re.compile("[0-9]{1,4}")


@dataclass(frozen=True)
class EvalSettings:
    """Drawing and counting answers."""

    n: int = 32
    """Answers per row of the data."""
    max_new_tokens: int = 1024
    """Most tokens of an answer."""
    temperature: float = 1.0
    """Sampling temperature."""
    top_p: float = 0.7
    """Nucleus sampling: draw from the smallest set of tokens with at least this probability. 1: all."""
    top_k: int = 0
    """Top-k sampling: draw from this many of the likeliest tokens. 0: all."""
    greedy: bool = False
    """Take the likeliest token always; only with n 1."""
    stop_strings: tuple[str, ...] = ()
    """An answer also ends where its text contains one of these; the string itself is kept."""
    right_from: float = 1.0
    """An answer is right from this score on; the score is the reward's `acc` if it has one, else the reward."""
    seed: int = 1
    """Decides every token drawn, and the resamples behind the confidence intervals."""
    save_path: str | None = None
    """Folder of the evaluation (evals/<model>-<data>-<digest of settings and data> if not set)."""
    device: str = "auto"
    """Device: `auto`, `cpu`, or the number of a GPU."""
    max_num_seqs: int = 64
    """Most sequences generated side by side."""
    kv_cache_gb: float = 4.0
    """Memory for keys and values of running sequences; fewer run side by side if more would be needed."""

    def __post_init__(self) -> None:
        for name in ("n", "max_new_tokens", "max_num_seqs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", fix="use at least 1")
        if not LEAST_TEMPERATURE <= self.temperature < math.inf:
            raise ConfigError(
                f"temperature is {self.temperature}",
                fix=f"use a number above 0 (at least {LEAST_TEMPERATURE}); `--greedy --n 1` takes the likeliest token",
            )
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p is {self.top_p}", fix="use a number above 0 and at most 1; 1 is all")
        if self.top_k < 0:
            raise ConfigError(f"top_k is {self.top_k}", fix="use 0 for all tokens, or how many to draw from")
        if self.greedy and self.n > 1:
            raise ConfigError(
                f"greedy is on but n is {self.n}: all answers to a row would be the same", fix="use --n 1"
            )
        if any(not string for string in self.stop_strings):
            raise ConfigError("stop_strings holds an empty string", fix="leave it out")
        if not math.isfinite(self.right_from):
            raise ConfigError(f"right_from is {self.right_from}", fix="use the score of a right answer, such as 1.0")
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}", fix="use 0 or a positive number")
        if self.device not in ("auto", "cpu") and not _GPU.fullmatch(self.device):
            raise ConfigError(f"device is {self.device!r}", fix="use auto, cpu, or one number such as 0")
        if not 0 < self.kv_cache_gb < math.inf:
            raise ConfigError(f"kv_cache_gb is {self.kv_cache_gb}", fix="use a number of gigabytes above 0")

    @property
    def sampling(self) -> Sampling:
        """What is drawn for each row."""
        return Sampling(**{field.name: getattr(self, field.name) for field in fields(Sampling)})


@dataclass(frozen=True)
class EvalConfig:
    """Everything that decides an evaluation."""

    evaluation: EvalSettings
    model: ModelSettings
    data: DataSettings
    reward: RewardSettings
