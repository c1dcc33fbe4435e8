"""Alarms: when they ring, what they say, and how seldom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dapo.errors import ConfigError
from dapo.tracking.alarms import ROUNDING, Alarms
from dapo.tracking.metrics import METRICS
from dapo.tracking.settings import AlarmSettings

QUIET = {
    "entropy": 1.0,
    "pg_clipfrac_upper": 0.01,
    "pg_clipfrac_lower": 0.01,
    "dapo_generated_groups": 10,
    "dapo_qualified_groups": 8,
    "dapo_all_correct_groups": 1,
    "dapo_all_wrong_groups": 1,
    "response_length_mean": 100.0,
    "truncated_share": 0.0,
    "rollout_train_logprob_abs_diff_mean": 0.002,
}
GAP = "rollout_train_logprob_abs_diff_mean"
EACH = AlarmSettings(alarm_window=1, alarm_interval=1)
"""Looks at single updates and gives every alarm every time."""


def history(**changes: Sequence[Any]) -> list[dict[str, Any]]:
    """One line per entry of the given metrics; all others stay quiet."""
    count = len(next(iter(changes.values())))
    return [{"step": at + 1, **QUIET, **{name: values[at] for name, values in changes.items()}} for at in range(count)]


def alarms(lines: Sequence[dict[str, Any]], settings: AlarmSettings) -> list[str]:
    """What the last of these lines gives rise to in a run that is watched all along."""
    watch = Alarms(settings)
    return [watch.see(line) for line in lines][-1] if lines else []


def rings(settings: AlarmSettings, **changes: Sequence[Any]) -> list[int]:
    """The updates at which a run that is watched all along gives an alarm."""
    lines = history(**changes)
    return [at + 1 for at in range(len(lines)) if alarms(lines[: at + 1], settings)]


def only(settings: AlarmSettings, **changes: Sequence[Any]) -> str:
    (text,) = alarms(history(**changes), settings)
    return text


def test_the_metrics_that_alarms_read_are_declared() -> None:
    assert QUIET.keys() <= METRICS.keys()


def test_a_run_that_goes_well_gives_no_alarm() -> None:
    assert rings(AlarmSettings(), entropy=[1.0] * 40) == []


def test_entropy_below_its_share_of_the_start_is_a_collapse() -> None:
    assert rings(EACH, entropy=[0.5, 0.1, 0.099]) == [3]  # 0.2 x 0.5 = 0.1 is not below
    assert rings(replace(EACH, alarm_entropy=0.5), entropy=[0.5, 0.24, 0.26]) == [2]
    text = only(EACH, entropy=[0.5, 0.05])
    assert text.startswith("entropy collapses: 0.050 nats, 10.0% of 0.500 at the start.")
    assert "Raise dapo_clip_eps_high" in text
    assert text.endswith("[alarm_entropy]")


def test_the_clip_saturates_by_the_sum_of_both_sides() -> None:
    assert rings(EACH, pg_clipfrac_upper=[0.1, 0.15, 0.0], pg_clipfrac_lower=[0.1, 0.06, 0.0]) == [2]
    assert rings(replace(EACH, alarm_clip_share=0.05), pg_clipfrac_upper=[0.03, 0.05]) == [2]
    text = only(EACH, pg_clipfrac_upper=[0.2], pg_clipfrac_lower=[0.05])
    assert text.startswith("clipping saturates: 25.0% of the trained tokens were clipped (20.0% above, 5.0% below)")
    assert "Lower lr" in text


@pytest.mark.parametrize(("right", "wrong", "words"), [(18, 1, "too easy"), (1, 18, "too hard")])
def test_few_informative_groups_are_told_apart_by_what_the_others_are(right: int, wrong: int, words: str) -> None:
    text = only(
        EACH,
        dapo_generated_groups=[20],
        dapo_qualified_groups=[1],
        dapo_all_correct_groups=[right],
        dapo_all_wrong_groups=[wrong],
    )
    # 1, 18 and 1 of 20
    assert text.startswith("few groups teach: 5.0% of the generated ones disagree, ")
    assert f"{5 * right:.1f}% are all right and {5 * wrong:.1f}% all wrong" in text
    assert words in text


def test_the_informative_share_is_of_all_groups_of_the_window() -> None:
    # 0 of 10, then 9 of 30: over both 9 of 40 = 0.225; a mean of shares would be 0.15
    two = replace(EACH, alarm_window=2, alarm_informative_share=0.2)
    counts = {"dapo_generated_groups": [10, 30], "dapo_qualified_groups": [0, 9]}
    assert rings(two, **counts) == []
    assert rings(replace(two, alarm_informative_share=0.23), **counts) == [2]


def test_an_update_fed_by_groups_of_before_is_not_alarming() -> None:
    assert rings(EACH, dapo_generated_groups=[0], dapo_qualified_groups=[0]) == []


def test_length_explodes_against_shortly_before_not_against_the_start() -> None:
    assert rings(EACH, response_length_mean=[100.0, 200.0, 401.0, 500.0]) == [3]  # 2 x 200 is not more than twice
    grows_healthily = [100.0 * 1.5**step for step in range(10)]  # to 38 times the start
    assert rings(EACH, response_length_mean=grows_healthily) == []
    assert rings(replace(EACH, alarm_length_growth=1.4), response_length_mean=grows_healthily[:3]) == [2, 3]
    text = only(EACH, response_length_mean=[100.0, 300.0], truncated_share=[0.0, 0.4])
    assert text.startswith("answers explode in length: 300.0 tokens, 3.0 times the 100.0 of shortly before; 40.0% are")
    assert "dapo_overlong_buffer_len" in text


def test_mismatch_grows_against_the_start() -> None:
    assert rings(EACH, **{GAP: [0.002, 0.01, 0.011]}) == [3]  # 5 x 0.002 is not more
    assert rings(replace(EACH, alarm_mismatch_growth=2.0), **{GAP: [0.002, 0.005]}) == [2]
    assert only(EACH, **{GAP: [0.002, 0.02]}).startswith(
        "rollout and training drift apart: their log-probabilities differ by 0.020 nats per token, 10 times as much"
    )


def test_a_mismatch_of_the_size_of_rounding_is_none() -> None:
    assert rings(EACH, **{GAP: [1e-7, ROUNDING]}) == []
    assert rings(EACH, **{GAP: [0.0, 2 * ROUNDING]}) == [2]


@pytest.mark.parametrize(
    ("threshold", "bad"),
    [
        ("alarm_entropy", {"entropy": [1.0, 0.0]}),
        ("alarm_clip_share", {"pg_clipfrac_upper": [0.0, 1.0]}),
        ("alarm_informative_share", {"dapo_qualified_groups": [8, 0]}),
        ("alarm_length_growth", {"response_length_mean": [1.0, 999.0]}),
        ("alarm_mismatch_growth", {GAP: [0.002, 9.0]}),
    ],
)
def test_a_threshold_of_0_switches_its_alarm_off(threshold: str, bad: dict[str, list[float]]) -> None:
    assert rings(EACH, **bad) == [2]
    assert rings(replace(EACH, **{threshold: 0}), **bad) == []


def test_one_update_alone_does_not_ring_when_the_window_is_longer() -> None:
    spike = {"pg_clipfrac_upper": [0.0, 0.9, 0.0, 0.0, 0.0, 0.9, 0.9]}
    # means of five from update 5 on: .18, .36, .36
    assert rings(replace(EACH, alarm_window=5), **spike) == [6, 7]
    assert rings(EACH, **spike) == [2, 6, 7]


def test_the_start_and_the_present_are_two_windows() -> None:
    # start (1 + .8) / 2 = .9, threshold .18; the windows end with updates 4 and 5: .2, .1
    settings = replace(EACH, alarm_window=2)
    assert rings(settings, entropy=[1.0, 0.8, 0.2, 0.2, 0.0]) == [5]
    assert rings(settings, entropy=[1.0, 0.0, 0.0]) == []  # two whole windows need four updates


@pytest.mark.parametrize(
    ("interval", "steps"), [(1, [1, 2, 3, 5, 6, 7, 8, 9]), (3, [1, 5, 8]), (4, [1, 5, 9]), (20, [1])]
)
def test_an_alarm_is_given_at_most_once_in_the_interval(interval: int, steps: list[int]) -> None:
    clipped = [0.9, 0.9, 0.9, 0.0, 0.9, 0.9, 0.9, 0.9, 0.9]  # at interval 3 update 4 would be due, but it is quiet
    assert rings(replace(EACH, alarm_interval=interval), pg_clipfrac_upper=clipped) == steps


def test_two_alarms_do_not_hold_each_other_back() -> None:
    lines = history(entropy=[1.0, 1.0, 0.1], pg_clipfrac_upper=[0.0, 0.9, 0.9])
    settings = replace(EACH, alarm_interval=20)
    assert len(alarms(lines[:2], settings)) == 1
    assert [text.split(":")[0] for text in alarms(lines, settings)] == ["entropy collapses"]


def test_lines_of_no_update_and_metrics_without_a_value_are_passed_over() -> None:
    lines = [{"step": 0, "heldout_accuracy": 0.5}, *history(entropy=[1.0, None, 0.1])]
    assert alarms(lines[:3], EACH) == []
    assert len(alarms(lines, EACH)) == 1
    assert alarms([], EACH) == []
    assert alarms([*lines, {"step": 4, **QUIET, "entropy": None}], EACH) == []  # not again for what was said


def test_a_skipped_update_is_passed_over_alike_by_the_run_and_by_whoever_reads_its_file() -> None:
    settings = replace(EACH, alarm_window=2)
    in_memory = history(pg_clipfrac_upper=[0.9, math.nan, 0.9])
    read_back = history(pg_clipfrac_upper=[0.9, None, 0.9])
    assert alarms(in_memory, settings) == alarms(read_back, settings) != []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alarm_window", 0),
        ("alarm_interval", 0),
        ("alarm_entropy", -0.1),
        ("alarm_entropy", 1.5),
        ("alarm_clip_share", math.nan),
        ("alarm_informative_share", 2),
        ("alarm_length_growth", 1.0),
        ("alarm_mismatch_growth", math.inf),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value}") as caught:
        AlarmSettings(**{name: value})
    assert caught.value.fix


def test_what_is_kept_does_not_grow_with_the_run() -> None:
    """Each alarm holds two windows, however long the run is."""
    watch = Alarms(replace(EACH, alarm_window=3))
    for line in history(entropy=[1.0] * 500):
        watch.see(line)
    assert {len(one._lines) for one in watch._watches} == {6}
