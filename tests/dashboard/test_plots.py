"""Curves of runs, from made-up metrics files."""

import shutil
import sys
from xml.etree import ElementTree

import matplotlib
import pytest

from dapo.dashboard.plots import _draw, _read, _smooth, _spread, plot_runs
from dapo.errors import ConfigError, DapoError, DataError
from dapo.tracking.metrics_log import MetricsLog


def make_run(folder, *, updates=12, gain=0.05):
    folder.mkdir(parents=True)
    log = MetricsLog(folder / "metrics.jsonl")
    log.write(0, {"heldout_accuracy": 0.2})
    for step in range(1, updates + 1):
        log.write(
            step,
            {
                "candidate_reward_mean": 0.2 + gain * step,
                "entropy": None if step == 3 else 1 / step,
                "response_length_mean": 14.0 - step / 2,
                "pg_clipfrac_upper": 0.02,
                "pg_clipfrac_lower": 0.01,
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
    figure = _draw(_read([make_run(tmp_path / "addition", updates=5, gain=0.1)]))
    reward = panel_of(figure, "Reward").get_lines()
    # per update, its mean over so short a run is itself, then the line and the points of the evaluations
    assert list(reward[0].get_ydata()) == pytest.approx([0.3, 0.4, 0.5, 0.6, 0.7])
    assert (list(reward[-1].get_xdata()), list(reward[-1].get_ydata())) == ([0, 4], [0.2, 0.5])
    entropy = panel_of(figure, "Entropy").get_lines()[0]
    assert list(entropy.get_xdata()) == [1, 2, 4, 5]  # update 3 has none
    clipped = panel_of(figure, "Clip share").get_lines()
    assert [line.get_ydata()[0] for line in clipped] == [0.02, 0.02, 0.01, 0.01]


def test_a_single_run_has_its_curves_labelled_where_they_end(tmp_path):
    said = words(_draw(_read([make_run(tmp_path / "addition")])))
    assert {"addition", "training", "held-out accuracy", "above", "below"} <= set(said)


def test_several_runs_are_told_apart_by_name_and_colour(tmp_path):
    runs = _read([make_run(tmp_path / "dapo"), make_run(tmp_path / "grpo", updates=20)])
    figure = _draw(runs)
    assert {"dapo", "grpo", "line: training, dots: held-out accuracy"} <= set(words(figure))
    colours = [line.get_color() for line in panel_of(figure, "Answer length").get_lines()]
    assert colours == [runs[0].colour] * 2 + [runs[1].colour] * 2
    assert runs[0].colour != runs[1].colour
    assert panel_of(figure, "Entropy").get_xlim() == (0, 20)


def test_runs_of_one_name_are_told_apart_by_the_folder_above(tmp_path):
    runs = _read([make_run(tmp_path / "monday" / "dapo"), make_run(tmp_path / "tuesday" / "dapo")])
    assert [run.name for run in runs] == ["monday/dapo", "tuesday/dapo"]


def test_a_name_with_dollars_is_not_taken_for_a_formula(tmp_path):
    run = make_run(tmp_path / r"a$\frac$", updates=2)
    assert len(plot_runs([run], tmp_path / "out")) == 2


def test_a_metric_that_a_run_lacks_is_said_to_be_missing(tmp_path):
    folder = tmp_path / "short"
    folder.mkdir()
    MetricsLog(folder / "metrics.jsonl").write(1, {"candidate_reward_mean": 0.5})
    assert words(_draw(_read([folder]))).count("not measured") == 3  # entropy, length, clip share


def test_the_picture_does_not_change_the_settings_of_the_process(tmp_path):
    run = make_run(tmp_path / "addition", updates=2)
    with matplotlib.rc_context({"font.size": 33.0}):
        plot_runs([run], tmp_path / "out")
        assert matplotlib.rcParams["font.size"] == 33.0


def test_smoothing_averages_neighbours_and_the_ends_over_what_there_is():
    # 40 values: one neighbour on each side
    values = [0.0, 3.0] + [0.0] * 38
    assert _smooth(values)[:4] == [1.5, 1.0, 1.0, 0.0]
    assert _smooth([0.0, 3.0]) == [0.0, 3.0]


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


def test_more_runs_than_colours_are_refused(tmp_path):
    run = make_run(tmp_path / "addition", updates=2)
    copies = [shutil.copytree(run, tmp_path / f"run{number}") for number in range(7)]
    with pytest.raises(ConfigError, match="7 runs in one picture") as refused:
        plot_runs(copies, tmp_path / "out")
    assert "at most 6" in refused.value.fix


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    run = make_run(tmp_path / "addition", updates=2)
    with pytest.raises(DapoError, match=r"cannot write the picture .*metrics.jsonl/out"):
        plot_runs([run], run / "metrics.jsonl" / "out")


def test_figures_that_a_notebook_has_open_stay_alone(tmp_path):
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    plot_runs([make_run(tmp_path / "addition", updates=2)], tmp_path / "out")
    assert pyplot.get_fignums() == before
