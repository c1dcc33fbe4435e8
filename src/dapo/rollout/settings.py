"""How answers are drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dapo.errors import ConfigError

LEAST_TEMPERATURE = 1e-6
"""Logits divided by less do not fit into float32."""


@dataclass(frozen=True)
class Sampling:
    """The distribution that answers are drawn from, and when they end."""

    n: int
    """Answers per prompt."""
    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    """Draw from the smallest set of tokens with at least this probability. 1: all."""
    top_k: int = 0
    """Draw from this many of the likeliest tokens. 0: all."""
    greedy: bool = False
    """Take the likeliest token instead of drawing."""
    stop_strings: tuple[str, ...] = ()
    """An answer also ends where its text contains one of these; the string is kept."""


@dataclass(frozen=True)
class RolloutSettings:
    """Drawing answers for training."""

    n_samples: int = 8
    """Answers per prompt (G), at least 2."""
    max_new_tokens: int = 256
    """Most tokens of an answer."""
    temperature: float = 1.0
    """Sampling temperature; log-probabilities are taken at the same one."""
    top_p: float = 1.0
    """Nucleus sampling; below 1 biases the ratio (see allow_biased_ratio)."""
    top_k: int = 0
    """Top-k sampling; above 0 biases the ratio (see allow_biased_ratio)."""
    allow_biased_ratio: bool = False
    """Train with top_p < 1 or top_k > 0 although the ratio is then off by the probability left out."""
    greedy: bool = False
    """Take the likeliest token always. Only for evaluation: a group of equal answers teaches nothing."""
    stop_strings: tuple[str, ...] = ()
    """An answer also ends where its text contains one of these; the string itself is kept and trained."""
    max_num_seqs: int = 64
    """Most sequences generated side by side."""
    kv_cache_gb: float = 4.0
    """Memory for keys and values of running sequences; fewer run side by side if more would be needed."""
    eager_decode: bool = True
    """Decode without compiled graphs, which are not built yet."""

    def __post_init__(self) -> None:
        if self.n_samples < 2:
            raise ConfigError(
                f"n_samples is {self.n_samples}", fix="a group compares answers with each other: use at least 2"
            )
        for name in ("max_new_tokens", "max_num_seqs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", fix="use at least 1")
        if not LEAST_TEMPERATURE <= self.temperature < math.inf:
            raise ConfigError(
                f"temperature is {self.temperature}",
                fix=f"use a number above 0 (at least {LEAST_TEMPERATURE}), such as 1.0; answers must be drawn",
            )
        if self.greedy:
            raise ConfigError(
                "greedy is on: all answers to a prompt would be the same, so no group could disagree",
                fix="leave greedy out and set temperature, such as 1.0",
            )
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p is {self.top_p}", fix="use a number above 0 and at most 1; 1 is all")
        if self.top_k < 0:
            raise ConfigError(f"top_k is {self.top_k}", fix="use 0 for all tokens, or how many to draw from")
        if (self.top_p < 1 or self.top_k > 0) and not self.allow_biased_ratio:
            name, value = ("top_p", self.top_p) if self.top_p < 1 else ("top_k", self.top_k)
            raise ConfigError(
                f"{name} is {value}: answers would be drawn from a cut distribution but scored by the full one, "
                "so each ratio would be off by the probability left out",
                fix="use top_p 1.0 and top_k 0, or accept the bias with allow_biased_ratio",
            )
        if not 0 < self.kv_cache_gb < math.inf:
            raise ConfigError(f"kv_cache_gb is {self.kv_cache_gb}", fix="use a number of gigabytes above 0")
        if any(not string for string in self.stop_strings):
            raise ConfigError("stop_strings holds an empty string", fix="leave it out")
        if not self.eager_decode:
            raise ConfigError("eager_decode is off, but compiled decoding is not built yet", fix="use --eager-decode")

    @property
    def sampling(self) -> Sampling:
        """What a training rollout draws."""
        return Sampling(
            n=self.n_samples,
            max_new_tokens=self.max_new_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            stop_strings=self.stop_strings,
        )
