"""Declared metrics and the way numbers are written."""

import pytest

from dapo.tracking.metrics import METRICS, metric
from dapo.tracking.numbers import compact, count, duration, percent, rough, significant

NAMES_PEOPLE_RELY_ON = [
    "dapo_gen_batches",
    "dapo_generated_groups",
    "dapo_qualified_groups",
    "dapo_filtered_groups",
    "dapo_sampling_efficiency",
    "dapo_discarded_qualified_groups",
    "loss",
    "grad_norm",
    "lr",
    "entropy",
    "ratio_mean",
    "ratio_std",
    "pg_clipfrac",
    "pg_clipfrac_lower",
    "pg_clipfrac_upper",
    "rollout_logprobs_mean",
    "train_logprobs_mean",
    "dapo_raw_reward_mean",
    "dapo_shaped_reward_mean",
    "dapo_overlong_penalty_mean",
    "dapo_all_correct_groups",
    "dapo_all_wrong_groups",
]


@pytest.mark.parametrize("name", NAMES_PEOPLE_RELY_ON)
def test_names_that_existing_tools_read_are_declared(name):
    assert metric(name).name == name


def test_every_metric_says_what_it_means():
    assert [name for name, declared in METRICS.items() if len(declared.meaning.split()) < 3] == []


def test_a_metric_that_is_not_declared_is_refused_with_the_place_to_declare_it():
    with pytest.raises(KeyError, match=r"'rewrad_mean' is not declared: add it to METRICS"):
        metric("rewrad_mean")


def test_numbers_of_the_reward_function_need_no_declaration_but_a_name():
    assert "`acc`" in metric("reward/acc").meaning
    with pytest.raises(KeyError):
        metric("reward/")


def test_a_metric_writes_its_values_in_its_own_way():
    assert metric("pg_clipfrac").text(0.0312) == "3.1%"
    assert metric("dapo_generated_groups").text(1234) == "1,234"
    assert metric("lr").text(0.000001) == "1.00e-06"


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_there_is_a_dash(value):
    assert metric("loss").text(value) == "-"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (812.3, "812"),
        (999.4, "999"),
        (999.6, "1.0k"),  # rounds to 1000
        (12_345, "12.3k"),
        (99_960, "100k"),  # 99.96 rounds to 100.0, four digits
        (999_960, "1.0M"),
        (2_500_000_000, "2.5G"),
        (-1500, "-1.5k"),
    ],
)
def test_large_numbers_keep_three_digits(value, text):
    assert compact(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (6.24, "6.2 s"),
        (9.96, "10 s"),
        (59.6, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.6, "1 h 00 min"),
        (3725, "1 h 02 min"),
        (47 * 3600, "47 h 00 min"),
        (51 * 3600, "2 d 03 h"),
    ],
)
def test_durations_use_the_units_people_say(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2, "10 s"), (43, "40 s"), (89, "90 s"), (125, "2 min"), (3725, "62 min"), (7200, "2 h 00 min")],
)
def test_estimates_are_round(seconds, text):
    assert rough(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.3, "2.30"), (2.3149, "2.31"), (257.8, "258"), (0.01234, "0.0123"), (-0.5, "-0.500"), (1e-6, "1.00e-06")],
)
def test_numbers_of_any_size_keep_three_digits(value, text):
    assert significant(value) == text


def test_counts_have_thousands_and_shares_are_percents():
    assert (count(1234567), percent(1)) == ("1,234,567", "100.0%")
