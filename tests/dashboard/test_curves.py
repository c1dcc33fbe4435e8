"""Which runs become one curve, what it is called, and where its band lies."""

from pathlib import Path

import pytest

from dapo.dashboard.curves import RunSet, band, common_name, read_run_sets, smoothed
from dapo.errors import DataError


def make_run(folder, seed=1, lr="1e-5", rewards=(0.5,)):
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f'[training]\nlr = {lr}\n[run]\nseed = {seed}\nsave_path = "{folder}"\n')
    lines = [f'{{"step": {step}, "loss": {reward}}}\n' for step, reward in enumerate(rewards, start=1)]
    (folder / "metrics.jsonl").write_text("".join(lines))
    return folder


def names(*folders):
    return [(runs.name, len(runs.seeds)) for runs in read_run_sets(folders)]


# ---------------------------------------------------------------- which runs are one curve


def test_runs_that_differ_in_seed_and_folder_are_one_curve(tmp_path):
    runs = [make_run(tmp_path / f"{name}-{seed}", seed, lr) for name, lr in (("a", 1), ("b", 2)) for seed in (1, 2, 3)]
    assert names(*runs) == [("a", 3), ("b", 3)]
    assert names(runs[3], runs[0], runs[4], runs[1]) == [("b", 2), ("a", 2)]


def test_a_seed_that_comes_again_begins_another_curve(tmp_path):
    """Before and after a change of the code: the same settings and seeds, two experiments."""
    runs = [make_run(tmp_path / when / f"dapo-{seed}", seed) for when in ("before", "after") for seed in (1, 2)]
    assert names(*runs) == [("before/dapo", 2), ("after/dapo", 2)]


def test_runs_without_settings_stand_alone(tmp_path):
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    for run in runs:
        (run / "config.toml").unlink()
    assert names(*runs) == [("a", 1), ("b", 1)]


def test_settings_that_cannot_be_read_are_named(tmp_path):
    run = make_run(tmp_path / "a")
    (run / "config.toml").write_text("[run")
    with pytest.raises(DataError, match=r"cannot read .*a/config.toml"):
        read_run_sets([run])


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("paths", "name"),
    [
        (["runs/dapo"], "dapo"),
        (["runs/dapo-seed1"], "dapo-seed1"),
        (["runs/dapo-seed1", "runs/dapo-seed2"], "dapo"),
        (["runs/dapo-10", "runs/dapo-11"], "dapo"),
        (["runs/dapo_s1", "runs/dapo_s2"], "dapo"),
        (["runs/dapo1", "runs/dapo2"], "dapo"),
        (["runs/seed1-dapo", "runs/seed2-dapo"], "dapo"),
        (["runs/dapo-seed1-lr1e-5", "runs/dapo-seed2-lr1e-5"], "dapo-lr1e-5"),
        (["runs/grpo+clip-higher-1", "runs/grpo+clip-higher-2"], "grpo+clip-higher"),
        (["runs/dapo/1", "runs/dapo/2"], "dapo"),
        (["runs/dapo/seed1", "runs/dapo/seed2"], "dapo"),
        (["1/dapo", "2/dapo"], "dapo"),
        (["dapo/1/run", "dapo/2/run"], "run"),
        (["a/x", "b/y"], "x"),
    ],
)
def test_a_curve_is_named_by_what_its_runs_names_share(paths, name):
    assert common_name([Path(path) for path in paths]) == name


def test_curves_of_one_name_are_told_apart_by_the_folder_above(tmp_path):
    runs = [make_run(tmp_path / day / "dapo", lr=lr) for day, lr in (("monday", 1), ("tuesday", 2))]
    assert names(*runs) == [("monday/dapo", 1), ("tuesday/dapo", 1)]
    runs = [make_run(tmp_path / day / "grpo" / str(seed), seed) for day in ("monday", "tuesday") for seed in (1, 2)]
    assert names(*runs) == [("monday/grpo", 2), ("tuesday/grpo", 2)]


def test_curves_that_share_folder_and_name_are_told_apart_by_their_runs(tmp_path):
    runs = [make_run(tmp_path / f"dapo-{seed}", seed, lr=1 if seed < 3 else 2) for seed in (1, 2, 3, 4)]
    assert names(*runs) == [("dapo-1 ... dapo-2", 2), ("dapo-3 ... dapo-4", 2)]


# ---------------------------------------------------------------- points and bands


def test_a_band_is_nothing_for_one_the_range_of_two_and_the_95_percent_interval_of_the_mean_of_more():
    assert band([0.5]) == (0.5, 0.5)
    assert band([0.7, 0.5]) == (0.5, 0.7)
    # 1, 2, 3: mean 2, deviation 1; t with 2 degrees of freedom is 4.303: 4.303 / sqrt(3) = 2.48434
    assert band([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.48434, 2 + 2.48434), abs=1e-4)
    # 1..5: mean 3, deviation sqrt(2.5); t with 4 is 2.776: 2.776 x sqrt(2.5 / 5) = 1.96293
    assert band([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx((3 - 1.96293, 3 + 1.96293), abs=1e-4)
    # 40 values of -1 and 40 of 1: deviation sqrt(80 / 79); beyond 31 seeds t stays 2.042: 2.042 x sqrt(1 / 79)
    assert band([-1.0, 1.0] * 40) == pytest.approx((-0.22974, 0.22974), abs=1e-4)


def test_smoothing_averages_neighbours_and_the_ends_over_what_there_is():
    # 40 values: one neighbour on each side
    values = [0.0, 3.0] + [0.0] * 38
    assert smoothed(values)[:4] == [1.5, 1.0, 1.0, 0.0]
    assert smoothed([0.0, 3.0]) == [0.0, 3.0]


def lines(*values):
    return [{"step": step, "loss": value} for step, value in enumerate(values, start=1)]


def test_a_mean_over_seeds_ends_where_the_first_of_them_ends_and_takes_those_that_have_a_value():
    points = RunSet("", (lines(1.0, 2.0, None, 4.0), lines(3.0, 4.0, 5.0))).points("loss", smooth=False)
    assert (points.steps, points.middle) == ([1, 2, 3], [2.0, 3.0, 5.0])
    assert (points.low, points.high) == ([1.0, 2.0, 5.0], [3.0, 4.0, 5.0])


def test_seeds_are_smoothed_before_the_band_is_taken():
    """One has 3 at update 2 and the other at update 3; smoothed, both have 1 at update 3 and the band no width."""
    first, second = lines(0.0, 3.0, *[0.0] * 38), lines(0.0, 0.0, 3.0, *[0.0] * 37)
    points = RunSet("", (first, second)).points("loss", smooth=True)
    assert (points.low[2], points.middle[2], points.high[2]) == (1.0, 1.0, 1.0)
    raw = RunSet("", (first, second)).points("loss", smooth=False)
    assert (raw.low[2], raw.middle[2], raw.high[2]) == (0.0, 1.5, 3.0)
