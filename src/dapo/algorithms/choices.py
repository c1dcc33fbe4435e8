"""What there is to choose among. Without tensors, so that settings and `--help` need no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LOG_RATIO_BOUND = 20.0
"""exp(20) is 5e8: far beyond any clip, far below what overflows float32."""

RatioSource = Literal["rollout", "on_policy"]
RatioLevel = Literal["token", "sequence"]
Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]
Scale = Literal["group", "batch", "none"]


@dataclass(frozen=True)
class Clip:
    """The trust region of the ratio: [1 - eps_low, 1 + eps_high], and optionally a cap for negative advantages."""

    eps_low: float
    eps_high: float
    dual: float | None = None
    """Dual clip (arXiv 1912.09729): with A < 0 the loss is at most dual x |A|. None: off."""
