"""What an algorithm is: a handful of choices among the functions of this room."""

from __future__ import annotations

from dataclasses import dataclass

from dapo.algorithms.choices import Aggregation, RatioLevel, RatioSource, Scale


@dataclass(frozen=True)
class AlgorithmSpec:
    """The choices that make an algorithm what its paper says; most can be overridden by a setting."""

    name: str
    summary: str
    """One line for `dapo algorithms`."""
    ratio: RatioSource
    """Which probabilities the update is measured against."""
    ratio_level: RatioLevel
    """A ratio per token, or one per answer."""
    aggregation: Aggregation
    """How token losses become one number."""
    scale_advantages: Scale
    dynamic_sampling: bool
    """Whether groups that agree are dropped and others generated in their place."""
    clip_eps_low: float
    clip_eps_high: float
    """The clip's half-widths, where the ratio is a real one."""
