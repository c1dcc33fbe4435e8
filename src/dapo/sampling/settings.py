"""How groups are collected for an update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dapo.errors import ConfigError


@dataclass(frozen=True)
class CollectionSettings:
    """Collecting groups for an update."""

    batch_size: int = 8
    """Groups per update."""
    dapo_gen_batch_size: int | None = None
    """Most prompts of one generation round (batch_size if not set)."""
    dapo_max_num_gen_batches: int = 10
    """Most generation rounds for one update."""
    filter_groups_metric: str = "score"
    """What a group must disagree on: `score`, or a key that the reward function returns, such as acc."""
    max_staleness: int = 0
    """Surplus groups are kept and trained first for this many updates; 0 drops and counts them."""
    on_sampling_limit: Literal["error", "train_partial"] = "error"
    """When the rounds are used up: stop with an error, or update on the groups there are."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "dapo_gen_batch_size", "dapo_max_num_gen_batches"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}", fix="use at least 1")
        if self.max_staleness < 0:
            raise ConfigError(f"max_staleness is {self.max_staleness}", fix="use 0 or a number of updates")

    @property
    def round_limit(self) -> int:
        """Most prompts of one generation round."""
        return self.dapo_gen_batch_size or self.batch_size
