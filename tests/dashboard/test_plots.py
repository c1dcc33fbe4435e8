"""Curves of runs, from made-up metrics files."""

import shutil
import sys
from xml.etree import ElementTree

import matplotlib
import pytest

from dapo.dashboard.curves import read_run_sets
from dapo.dashboard.plots import _draw, _spread, plot_runs
from dapo.errors import ConfigError, DapoError, DataError
from dapo.tracking.metrics_log import MetricsLog


def make_run(folder, *, updates=12, gain=0.05, seed=None):
    folder.mkdir(parents=True)
    if seed is not None:
        (folder / "config.toml").write_text(f"[run]\nseed = {seed}\n")
    log = MetricsLog(folder / "metrics.jsonl")
    log.write(0, {"heldout_accuracy": 0.2})
    for step in range(1, updates + 1):
        log.write(
            step,
            {
                "candidate_reward_mean": 0.2 + gain * step,
                "entropy": None if step == 3 else 1 / step,
                "response_length_mean": 14.0 - step / 2,
                "dapo_all_correct_share": 0.25,
                "pg_clipfrac_upper": 0.02,
                "pg_clipfrac_lower": 0.01,
                "up_clipped_prob_mean": 0.125,
                "heldout_accuracy": 0.5 if step % 4 == 0 else None,
            },
        )
    return folder


def panel_of(figure, title):
    return next(axes for axes in figure.axes if axes.get_title(loc="left") == title)


def words(figure):
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text) if text.get_text()]


def test_a_run_becomes_a_png_and_an_svg(tmp_path):
    run = make_run(tmp_path / "runs" / "addition")
    png, svg = plot_runs([run], tmp_path / "out" / "curves.png")
    assert (png, svg) == (tmp_path / "out" / "curves.png", tmp_path / "out" / "curves.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")


@pytest.mark.parametrize("name", ["curves", "curves.png", "curves.svg"])
def test_both_files_share_the_name_that_was_asked_for(tmp_path, name):
    run = make_run(tmp_path / "addition", updates=2)
    assert [path.name for path in plot_runs([run], tmp_path / name)] == ["curves.png", "curves.svg"]


def test_a_dot_in_the_name_is_no_file_type(tmp_path):
    run = make_run(tmp_path / "addition", updates=2)
    assert [path.name for path in plot_runs([run], tmp_path / "run-0.1")] == ["run-0.1.png", "run-0.1.svg"]


def test_the_same_metrics_give_the_same_files(tmp_path):
    run = make_run(tmp_path / "addition")
    first, second = plot_runs([run], tmp_path / "a"), plot_runs([run], tmp_path / "b")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_the_curves_are_the_metrics_of_the_file(tmp_path):
    figure = _draw(read_run_sets([make_run(tmp_path / "addition", updates=5, gain=0.1)]))
    reward = panel_of(figure, "Reward").get_lines()
    # the line and the points of the evaluations, then per update, its mean over so short a run being itself
    assert (list(reward[1].get_xdata()), list(reward[1].get_ydata())) == ([0, 4], [0.2, 0.5])
    assert list(reward[-1].get_ydata()) == pytest.approx([0.3, 0.4, 0.5, 0.6, 0.7])
    entropy = panel_of(figure, "Entropy").get_lines()[0]
    assert list(entropy.get_xdata()) == [1, 2, 4, 5]  # update 3 has none
    clipped = panel_of(figure, "Clip share").get_lines()
    assert [line.get_ydata()[0] for line in clipped] == [0.02, 0.02, 0.01, 0.01]
    assert panel_of(figure, "All-right groups").get_lines()[0].get_ydata()[0] == 0.25
    assert panel_of(figure, "Up-clipped tokens").get_lines()[0].get_ydata()[0] == 0.125


def test_a_single_run_has_its_curves_labelled_where_they_end(tmp_path):
    said = words(_draw(read_run_sets([make_run(tmp_path / "addition")])))
    assert {"addition", "training", "held-out", "above", "below"} <= set(said)
    assert not any("band" in text for text in said)


def test_several_runs_are_told_apart_by_name_and_colour(tmp_path):
    figure = _draw(read_run_sets([make_run(tmp_path / "dapo"), make_run(tmp_path / "grpo", updates=20)]))
    assert {"dapo", "grpo", "dots: held-out accuracy, line: training"} <= set(words(figure))
    lines = panel_of(figure, "Answer length").get_lines()
    assert [len(line.get_xdata()) for line in lines] == [12, 12, 20, 20]
    names = {text.get_text(): text.get_color() for text in figure.findobj(matplotlib.text.Text)}
    assert [line.get_color() for line in lines] == [names["dapo"]] * 2 + [names["grpo"]] * 2
    assert names["dapo"] != names["grpo"]
    assert panel_of(figure, "Entropy").get_xlim() == (0, 20)


def test_seeds_are_one_curve_in_a_band_that_the_picture_names(tmp_path):
    """Rewards of update 10 are 0.7, 0.8, 0.9: mean 0.8, deviation 0.1, half width 4.303 x 0.1 / sqrt(3) = 0.24843."""
    runs = [make_run(tmp_path / f"dapo-{seed}", gain=0.05 + seed / 100, seed=seed) for seed in range(3)]
    for run in runs:  # else the held-out accuracy has the band
        (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text().replace("heldout_accuracy", "epoch"))
    figure = _draw(read_run_sets(runs))
    assert {"dapo (3 seeds)", "band: 95% interval of the mean over seeds (Student's t)"} <= set(words(figure))
    reward = panel_of(figure, "Reward")
    (line,) = reward.get_lines()
    assert line.get_ydata()[9] == pytest.approx(0.8)
    (filled,) = reward.collections
    edges = sorted({height for step, height in filled.get_paths()[0].vertices.tolist() if step == 10})
    assert edges == pytest.approx([0.8 - 0.24843, 0.8 + 0.24843], abs=1e-4)
    # of two curves in a panel, the first alone has a band
    assert len(panel_of(figure, "Clip share").collections) == 1


def test_a_band_over_two_seeds_is_said_to_be_their_range(tmp_path):
    two = [make_run(tmp_path / f"dapo-{seed}", seed=seed) for seed in range(2)]
    assert "band: range of 2 seeds" in words(_draw(read_run_sets(two)))


def test_a_name_with_dollars_is_not_taken_for_a_formula(tmp_path):
    run = make_run(tmp_path / r"a$\frac$", updates=2)
    assert len(plot_runs([run], tmp_path / "out")) == 2


@pytest.mark.parametrize(
    ("metrics", "panels"),
    [
        ({"candidate_reward_mean": 0.5}, ["Reward"]),
        ({"candidate_reward_mean": 0.5, "up_clipped_prob_mean": None}, ["Reward"]),
        ({"entropy": 1.0, "pg_clipfrac_lower": 0.0}, ["Entropy", "Clip share"]),
        ({"entropy": 1.0, "heldout_accuracy": 0.0, "response_length_mean": 3}, ["Reward", "Entropy", "Answer length"]),
        (
            dict.fromkeys(("heldout_accuracy", "entropy", "response_length_mean", "dapo_all_correct_share"), 1.0)
            | {"up_clipped_prob_mean": 0.5},
            ["Reward", "Entropy", "Answer length", "All-right groups", "Up-clipped tokens"],
        ),
    ],
)
def test_what_no_run_has_measured_has_no_panel(tmp_path, metrics, panels):
    short, full = tmp_path / "short", make_run(tmp_path / "full")
    short.mkdir()
    MetricsLog(short / "metrics.jsonl").write(1, metrics)
    assert [axes.get_title(loc="left") for axes in _draw(read_run_sets([short])).axes] == panels
    assert len(_draw(read_run_sets([short, full])).axes) == 6


def test_a_run_that_measured_nothing_drawn_is_named(tmp_path):
    MetricsLog(tmp_path / "metrics.jsonl").write(1, {"loss": 0.5})
    with pytest.raises(DataError, match=f"{tmp_path.name} has none of the metrics that are drawn"):
        plot_runs([tmp_path], tmp_path / "out")


def test_the_picture_does_not_change_the_settings_of_the_process(tmp_path):
    run = make_run(tmp_path / "addition", updates=2)
    with matplotlib.rc_context({"font.size": 33.0}):
        plot_runs([run], tmp_path / "out")
        assert matplotlib.rcParams["font.size"] == 33.0


def test_labels_are_moved_apart_around_their_middle():
    # 0.5 and 0.51 need 0.1 between them: 0.5 and 0.6 is 0.045 too high on average
    assert _spread([0.5, 0.51], 0.1) == pytest.approx([0.455, 0.555])
    assert _spread([0.1, 0.9], 0.1) == pytest.approx([0.1, 0.9])
    assert _spread([], 0.1) == []


def test_a_missing_matplotlib_is_named_with_its_remedy(tmp_path, monkeypatch):
    run = make_run(tmp_path / "addition", updates=2)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match="matplotlib") as refused:
        plot_runs([run], tmp_path / "out")
    assert refused.value.fix == 'pip install "dapo-rl[plot]"'


def test_what_is_no_run_is_named(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*nothing/metrics.jsonl"):
        plot_runs([tmp_path / "nothing"], tmp_path / "out")
    with pytest.raises(ConfigError, match="no run to plot"):
        plot_runs([], tmp_path / "out")


def test_a_run_without_updates_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(DataError, match="has no finished update yet"):
        plot_runs([tmp_path], tmp_path / "out")


def test_more_curves_than_colours_are_refused(tmp_path):
    run = make_run(tmp_path / "addition", updates=2)
    copies = [shutil.copytree(run, tmp_path / f"run{number}") for number in range(7)]
    with pytest.raises(ConfigError, match="7 curves in one picture") as refused:
        plot_runs(copies, tmp_path / "out")
    assert "at most 6" in refused.value.fix


def test_seven_seeds_are_one_curve_and_not_too_many(tmp_path):
    seeds = [make_run(tmp_path / f"dapo-{seed}", updates=2, seed=seed) for seed in range(7)]
    assert len(plot_runs(seeds, tmp_path / "out")) == 2


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    run = make_run(tmp_path / "addition", updates=2)
    with pytest.raises(DapoError, match=r"cannot write the picture .*metrics.jsonl/out"):
        plot_runs([run], run / "metrics.jsonl" / "out")


def test_figures_that_a_notebook_has_open_stay_alone(tmp_path):
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    plot_runs([make_run(tmp_path / "addition", updates=2)], tmp_path / "out")
    assert pyplot.get_fignums() == before
