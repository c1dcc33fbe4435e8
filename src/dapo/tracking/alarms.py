"""What the metrics of a run warn of: each alarm with what it usually means and what to do.

Pure functions of the metrics so far: a run that goes on gives the same alarms as the unbroken one.
"""

from __future__ import annotations

import math
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


def alarms(history: Sequence[Mapping[str, Any]], settings: AlarmSettings) -> list[str]:
    """The warnings that the last line of `history` gives rise to, each at most once in `alarm_interval` updates.

    history: the lines of `metrics.jsonl` so far, in order; lines without a value for an alarm's
    metrics are passed over by it.
    """
    return [
        text for alarm in _ALARMS if (text := _warning(alarm, history, settings, getattr(settings, alarm.threshold)))
    ]


def _warning(
    alarm: _Alarm, history: Sequence[Mapping[str, Any]], settings: AlarmSettings, threshold: float
) -> str | None:
    window = settings.alarm_window
    lines = [line for line in history if all(_has_value(line.get(name)) for name in alarm.metrics)]
    start = (2 if alarm.compares else 1) * window - 1
    if not threshold or len(lines) <= start or lines[-1] is not history[-1]:
        return None
    series = {name: [float(line[name]) for line in lines] for name in alarm.metrics}
    last = _windows(series, len(lines), window)
    if not alarm.rings(last, threshold):
        return None
    given = None
    for at in range(start, len(lines)):
        step = lines[at]["step"]
        due = given is None or step - given >= settings.alarm_interval
        if due and alarm.rings(_windows(series, at + 1, window), threshold):
            given = step
    return f"{alarm.words(last)} [{alarm.threshold}]" if given == lines[-1]["step"] else None


def _has_value(value: float | None) -> bool:
    """Not finite is null in the file, so a run that goes on must not see it otherwise."""
    return value is not None and math.isfinite(value)


def _windows(series: Mapping[str, Sequence[float]], end: int, window: int) -> _Windows:
    """The windows of the first `end` updates; the one before the last is shorter where the run is too young."""

    def means(end: int) -> Means:
        last = {name: values[max(end - window, 0) : end] for name, values in series.items()}
        return {name: sum(values) / max(len(values), 1) for name, values in last.items()}

    return _Windows(means(end), means(max(end - window, 0)), means(window))


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
