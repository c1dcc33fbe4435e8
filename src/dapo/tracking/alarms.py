"""What the metrics of a run warn of: each alarm with what it usually means and what to do.

They follow from the metrics so far alone: a run that goes on gives the same alarms as the unbroken one.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dapo.tracking.numbers import count, one_digit, percent, three_digits
from dapo.tracking.settings import AlarmSettings

ROUNDING = 1e-3
"""Nats per token: rollout and training log-probabilities that differ less do so by rounding alone."""

Means = Mapping[str, float]
"""Metric -> mean over a window of updates."""


@dataclass(frozen=True, slots=True)
class _Windows:
    """Means of an alarm's metrics at one update."""

    now: Means
    """Over the last window of updates."""
    before: Means
    """Over the window before that."""
    first: Means
    """Over the first window of the run."""


@dataclass(frozen=True, slots=True)
class _Alarm:
    threshold: str
    """The setting it rings by."""
    metrics: tuple[str, ...]
    compares: bool
    """It looks at two windows, which must not overlap."""
    rings: Callable[[_Windows, float], bool]
    words: Callable[[_Windows], str]


class Alarms:
    """Reads a run's metrics line by line and says what is wrong, each at most once in `alarm_interval` updates."""

    def __init__(self, settings: AlarmSettings) -> None:
        self._watches = [_Watch(alarm, settings) for alarm in _ALARMS]

    def see(self, line: Mapping[str, Any]) -> list[str]:
        """The warnings that the next line of `metrics.jsonl` gives rise to.

        An alarm passes over a line without a value for one of its metrics.
        """
        return [warning for watch in self._watches if (warning := watch.see(line))]


class _Watch:
    """One alarm over a run. What it keeps does not grow with the run."""

    def __init__(self, alarm: _Alarm, settings: AlarmSettings) -> None:
        self._alarm = alarm
        self._settings = settings
        self._threshold: float = getattr(settings, alarm.threshold)
        self._lines: deque[Means] = deque(maxlen=min(2 * settings.alarm_window, sys.maxsize))
        self._first: Means = {}
        self._seen = 0
        self._given: int | None = None
        """The update at which it rang last."""

    def see(self, line: Mapping[str, Any]) -> str | None:
        names, window = self._alarm.metrics, self._settings.alarm_window
        if not self._threshold or not all(_has_value(line.get(name)) for name in names):
            return None
        self._lines.append({name: float(line[name]) for name in names})
        self._seen += 1
        if self._seen <= window:
            self._first = _means(list(self._lines))
        if self._seen < (2 if self._alarm.compares else 1) * window:
            return None
        lines = list(self._lines)
        windows = _Windows(_means(lines[-window:]), _means(lines[:-window]), self._first)
        due = self._given is None or line["step"] - self._given >= self._settings.alarm_interval
        if not due or not self._alarm.rings(windows, self._threshold):
            return None
        self._given = line["step"]
        return f"{self._alarm.words(windows)} [{self._alarm.threshold}]"


def _has_value(value: float | None) -> bool:
    """Not finite is null in the file, so a run that goes on must not see it otherwise."""
    return value is not None and math.isfinite(value)


def _means(lines: Sequence[Means]) -> Means:
    """Of each metric over the lines; empty for none."""
    return {name: sum(line[name] for line in lines) / len(lines) for name in (lines[0] if lines else ())}


def _entropy_words(windows: _Windows) -> str:
    now, first = windows.now["entropy"], windows.first["entropy"]
    return (
        f"entropy collapses: {three_digits(now)} nats, {percent(now / first)} of {three_digits(first)} at the start. "
        "The model settles on one way to answer and explores no more; accuracy then stops rising. "
        "Raise dapo_clip_eps_high, lower lr, or use harder prompts"
    )


def _clip_words(windows: _Windows) -> str:
    upper, lower = windows.now["pg_clipfrac_upper"], windows.now["pg_clipfrac_lower"]
    return (
        f"clipping saturates: {percent(upper + lower)} of the trained tokens were clipped ({percent(upper)} above, "
        f"{percent(lower)} below) and learned nothing. Each update moves the policy further than the clip allows. "
        "Lower lr, or make fewer optimizer steps per update (raise mini_bs or gradient_accumulation_steps)"
    )


def _informative(windows: _Windows, threshold: float) -> bool:
    return windows.now["dapo_qualified_groups"] < threshold * windows.now["dapo_generated_groups"]


def _informative_words(windows: _Windows) -> str:
    generated, kept = windows.now["dapo_generated_groups"], windows.now["dapo_qualified_groups"]
    right, wrong = windows.now["dapo_all_correct_groups"], windows.now["dapo_all_wrong_groups"]
    shares = (
        f"few groups teach: {percent(kept / generated)} of the generated ones disagree, "
        f"{percent(right / generated)} are all right and {percent(wrong / generated)} all wrong. "
    )
    if right > wrong:
        return f"{shares}The data is too easy for the model by now. Use harder prompts, or stop here"
    return (
        f"{shares}The data is too hard for the model. Use easier prompts, raise n_samples or max_new_tokens, "
        "and check the reward with answers that you know to be right"
    )


def _length_words(windows: _Windows) -> str:
    now, before = windows.now["response_length_mean"], windows.before["response_length_mean"]
    return (
        f"answers explode in length: {one_digit(now)} tokens, {one_digit(now / before)} times the {one_digit(before)} "
        f"of shortly before; {percent(windows.now['truncated_share'])} are cut. The model rambles or repeats itself. "
        "Read some with `dapo show`; set dapo_overlong_buffer_len, or lower lr"
    )


def _mismatch(windows: _Windows, threshold: float) -> bool:
    now, first = windows.now[_MISMATCH], windows.first[_MISMATCH]
    return now > ROUNDING and now > threshold * first


def _mismatch_words(windows: _Windows) -> str:
    now, first = windows.now[_MISMATCH], windows.first[_MISMATCH]
    times = f"{count(now / first)} times as much as" if first else "unlike"
    return (
        f"rollout and training drift apart: their log-probabilities differ by {three_digits(now)} nats per token, "
        f"{times} at the start. Either updates move the policy further while they last, or the engine computes "
        "something else than the trainer. Lower lr or max_staleness; if ratio_mean leaves 1 too, use dtype float32"
    )


_MISMATCH = "rollout_train_logprob_abs_diff_mean"
_ALARMS = (
    _Alarm(
        "alarm_entropy",
        ("entropy",),
        True,
        lambda windows, least: windows.now["entropy"] < least * windows.first["entropy"],
        _entropy_words,
    ),
    _Alarm(
        "alarm_clip_share",
        ("pg_clipfrac_upper", "pg_clipfrac_lower"),
        False,
        lambda windows, most: windows.now["pg_clipfrac_upper"] + windows.now["pg_clipfrac_lower"] > most,
        _clip_words,
    ),
    _Alarm(
        "alarm_informative_share",
        ("dapo_generated_groups", "dapo_qualified_groups", "dapo_all_correct_groups", "dapo_all_wrong_groups"),
        False,
        _informative,
        _informative_words,
    ),
    _Alarm(
        "alarm_length_growth",
        ("response_length_mean", "truncated_share"),
        True,
        lambda windows, most: windows.now["response_length_mean"] > most * windows.before["response_length_mean"],
        _length_words,
    ),
    _Alarm("alarm_mismatch_growth", (_MISMATCH,), True, _mismatch, _mismatch_words),
)
