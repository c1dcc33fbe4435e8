"""The settings of the algorithm, and what they come to for one run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dapo.algorithms.choices import LOG_RATIO_BOUND, Aggregation, Clip, RatioLevel, RatioSource, Scale
from dapo.algorithms.registry import ALGORITHMS
from dapo.algorithms.spec import AlgorithmSpec
from dapo.errors import ConfigError
from dapo.wording import nearest


@dataclass(frozen=True)
class AlgorithmSettings:
    """What is optimised. None stands for the algorithm's own choice (`dapo algorithms`)."""

    algo: str = "dapo"
    """Algorithm: dapo, grpo, gspo or dr_grpo."""
    ratio: RatioSource | None = None
    """Old policy of the ratio: `rollout` (the one that wrote the tokens) or `on_policy` (value always 1)."""
    dapo_clip_eps_low: float | None = None
    """DAPO: lower half-width of the clip (0.2)."""
    dapo_clip_eps_high: float | None = None
    """DAPO: upper half-width of the clip, at least the lower (0.28)."""
    clip_eps_low: float | None = None
    """Other algorithms under ratio = "rollout": lower half-width of the clip."""
    clip_eps_high: float | None = None
    """Other algorithms under ratio = "rollout": upper half-width of the clip."""
    clip_ratio_c: float | None = None
    """Dual clip: with a negative advantage the loss is at most this times |advantage|; above 1. Off by default."""
    loss_aggregation: Aggregation | None = None
    """How token losses become one: token-mean, seq-mean-token-mean, seq-mean-token-sum[-norm]."""
    scale_advantages: Scale | None = None
    """Advantages are divided by the deviation of their group, of the batch, or not at all (none)."""
    adv_eps: float = 1e-8
    """Added to the deviation that advantages are divided by."""
    adv_correction: int = 0
    """0: population deviation. 1: sample deviation."""
    dynamic_sampling: bool | None = None
    """Drop groups that agree and generate others in their place."""
    mask_overlong_truncated: bool = False
    """Overlong filtering: truncated answers leave the loss, numerator and denominator alike."""
    dapo_overlong_buffer_len: int = 0
    """Tokens before max_new_tokens in which the soft overlong penalty grows. 0 switches it off."""
    dapo_overlong_penalty_factor: float = 1.0
    """What the soft overlong penalty is multiplied by."""

    def __post_init__(self) -> None:
        if self.algo not in ALGORITHMS:
            guess = nearest(self.algo, ALGORITHMS)
            hint = f"did you mean {guess}? " if guess else ""
            raise ConfigError(f"algo is {self.algo!r}", fix=f"{hint}known are {', '.join(ALGORITHMS)}")
        if self.clip_ratio_c is not None and not 1 < self.clip_ratio_c < math.inf:
            raise ConfigError(f"clip_ratio_c is {self.clip_ratio_c}", fix="choose a number above 1, such as 10")
        if not (self.adv_eps >= 0 and math.isfinite(self.adv_eps)):
            raise ConfigError(f"adv_eps is {self.adv_eps}", fix="choose 0 or a small positive number such as 1e-8")
        if self.adv_correction not in (0, 1):
            raise ConfigError(f"adv_correction is {self.adv_correction}", fix="choose 0 or 1")
        if self.dapo_overlong_buffer_len < 0:
            raise ConfigError(
                f"dapo_overlong_buffer_len is {self.dapo_overlong_buffer_len}",
                fix="choose a number of tokens, or 0 to switch the penalty off",
            )
        if not (self.dapo_overlong_penalty_factor >= 0 and math.isfinite(self.dapo_overlong_penalty_factor)):
            raise ConfigError(
                f"dapo_overlong_penalty_factor is {self.dapo_overlong_penalty_factor}",
                fix="choose a number from 0 up, such as 1.0",
            )


@dataclass(frozen=True)
class Algorithm:
    """The settings with every choice made: what the trainer and the sampler work by."""

    name: str
    ratio: RatioSource
    ratio_level: RatioLevel
    clip: Clip | None
    """None under the on-policy ratio, whose value is 1 so that no clip can act."""
    aggregation: Aggregation
    scale_advantages: Scale
    adv_eps: float
    adv_correction: int
    dynamic_sampling: bool
    mask_overlong_truncated: bool
    overlong_buffer_len: int
    overlong_penalty_factor: float

    @classmethod
    def of(cls, settings: AlgorithmSettings) -> Algorithm:
        """Make every choice; raises ConfigError for one that cannot act."""
        spec = ALGORITHMS[settings.algo]
        ratio = settings.ratio or spec.ratio
        if spec.name == "dapo" and ratio == "on_policy":
            raise ConfigError(
                "ratio is 'on_policy' under algo dapo: a ratio that is always 1 is never clipped",
                fix="leave ratio out, or choose --algo grpo",
            )
        dynamic = spec.dynamic_sampling if settings.dynamic_sampling is None else settings.dynamic_sampling
        return cls(
            name=spec.name,
            ratio=ratio,
            ratio_level=spec.ratio_level,
            clip=_clip(settings, spec, ratio),
            aggregation=settings.loss_aggregation or spec.aggregation,
            scale_advantages=settings.scale_advantages or spec.scale_advantages,
            adv_eps=settings.adv_eps,
            adv_correction=settings.adv_correction,
            dynamic_sampling=dynamic,
            mask_overlong_truncated=settings.mask_overlong_truncated,
            overlong_buffer_len=settings.dapo_overlong_buffer_len,
            overlong_penalty_factor=settings.dapo_overlong_penalty_factor,
        )


def _clip(settings: AlgorithmSettings, spec: AlgorithmSpec, ratio: RatioSource) -> Clip | None:
    mine, other = ("dapo_clip_eps", "clip_eps") if spec.name == "dapo" else ("clip_eps", "dapo_clip_eps")
    for name in (f"{other}_low", f"{other}_high"):
        if getattr(settings, name) is not None:
            raise ConfigError(
                f"{name} is {getattr(settings, name)} but algo is {spec.name}, which does not read it",
                fix=f"use {name.replace(other, mine)}",
            )
    given = {name: getattr(settings, name) for name in (f"{mine}_low", f"{mine}_high", "clip_ratio_c")}
    if ratio == "on_policy":
        for name, value in given.items():
            if value is not None:
                raise ConfigError(
                    f"{name} is {value} but ratio is 'on_policy': the ratio is always 1, so the clip cannot act",
                    fix=f'leave {name} out, or set ratio = "rollout"',
                )
        return None
    low = spec.clip_eps_low if given[f"{mine}_low"] is None else given[f"{mine}_low"]
    high = spec.clip_eps_high if given[f"{mine}_high"] is None else given[f"{mine}_high"]
    if not 0 < low < 1:
        raise ConfigError(f"{mine}_low is {low}", fix=f"choose a number between 0 and 1, such as {spec.clip_eps_low}")
    if not low <= high < math.inf:
        raise ConfigError(
            f"{mine}_high is {high} but {mine}_low is {low}",
            fix=f"make {mine}_high at least {mine}_low; the default is {spec.clip_eps_high}",
        )
    for name, value in ((f"{mine}_high", high), ("clip_ratio_c", settings.clip_ratio_c)):
        if value is not None and value >= math.exp(LOG_RATIO_BOUND):
            raise ConfigError(
                f"{name} is {value}, which no ratio reaches: the clip could not act", fix=f"make {name} smaller"
            )
    return Clip(low, high, settings.clip_ratio_c)
