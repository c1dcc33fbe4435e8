"""Curves of one or several runs, read from their `metrics.jsonl`, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dapo.errors import ConfigError, DapoError, DataError
from dapo.tracking.metrics_log import read_metrics

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's colours, told apart by colour-blind readers too; one per run."""
_GREY = "#6b6b6b"
_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.edgecolor": "#b8b8b8",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#ececec",
    "xtick.color": _GREY,
    "ytick.color": _GREY,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "lines.solid_capstyle": "round",
    "text.parse_math": False,  # a folder's name may hold dollars
    # Element ids of an SVG are random without it.
    "svg.hashsalt": "dapo",
}
_LEFT = 0.06
"""Left edge of panels and names, as a share of the picture's width."""
_NAMES_PER_ROW = 3
_LABEL_GAP = 0.075
"""Least distance of two labels beside a panel, as a share of its height."""


@dataclass(frozen=True, slots=True)
class _Curve:
    """One metric in a panel."""

    metric: str
    label: str
    dashed: bool = False
    measured_at_times: bool = False
    """Measured only now and then: drawn as points. Otherwise once per update, and smoothed."""


@dataclass(frozen=True, slots=True)
class _Panel:
    title: str
    unit: str
    marks: str
    """What tells the curves apart where several runs leave no room for labels at their ends."""
    curves: tuple[_Curve, ...]
    percent: bool = False
    from_zero: bool = False


_PANELS = (
    _Panel(
        "Reward",
        "mean of all answers",
        "line: training, dots: held-out accuracy",
        (
            _Curve("candidate_reward_mean", "training"),
            _Curve("heldout_accuracy", "held-out accuracy", measured_at_times=True),
        ),
    ),
    _Panel("Entropy", "nats per token", "", (_Curve("entropy", ""),), from_zero=True),
    _Panel("Answer length", "tokens", "", (_Curve("response_length_mean", ""),), from_zero=True),
    _Panel(
        "Clip share",
        "of trained tokens",
        "solid: above, dashed: below",
        (_Curve("pg_clipfrac_upper", "above"), _Curve("pg_clipfrac_lower", "below", dashed=True)),
        percent=True,
        from_zero=True,
    ),
)


@dataclass(frozen=True, slots=True)
class _Run:
    name: str
    colour: str
    lines: Sequence[Mapping[str, Any]]

    def points(self, metric: str) -> tuple[list[int], list[float]]:
        """Steps and values where the metric has one."""
        known = [(line["step"], line[metric]) for line in self.lines if line.get(metric) is not None]
        return [step for step, _ in known], [value for _, value in known]


def plot_runs(run_dirs: Sequence[Path], out: Path) -> list[Path]:
    """Draws reward, entropy, answer length and clip shares over the updates; several runs in one picture.

    out: a name with or without `.png` or `.svg`; both files are written and returned, in this order. The same metrics
    give the same files. Raises ConfigError when matplotlib is missing, no run is given or there are more runs
    than colours, and DataError for a run without updates.
    """
    runs = _read(run_dirs)
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError("plots need matplotlib, which is not installed", fix='pip install "dapo-rl[plot]"') from error
    stem = out.with_suffix("") if out.suffix in (".png", ".svg") else out
    if not stem.name:
        raise ConfigError(f"--out {out} names a folder", fix=f"name the picture in it, such as {out / 'curves'}")
    paths = [stem.with_name(stem.name + suffix) for suffix in (".png", ".svg")]
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        figure = _draw(runs)
        try:
            stem.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(paths[0], dpi=160)
            figure.savefig(paths[1], metadata={"Date": None})
        except OSError as error:
            raise DapoError(
                f"cannot write the picture {stem}: {error.strerror or error}", fix="choose another --out"
            ) from error
    return paths


def _read(run_dirs: Sequence[Path]) -> list[_Run]:
    if not run_dirs:
        raise ConfigError("there is no run to plot", fix="name at least one run folder")
    if len(run_dirs) > len(_COLOURS):
        raise ConfigError(
            f"{len(run_dirs)} runs in one picture cannot be told apart", fix=f"plot at most {len(_COLOURS)} at once"
        )
    paths = [run_dir.resolve() for run_dir in run_dirs]
    names = [path.name for path in paths]
    runs = []
    for path, colour in zip(paths, _COLOURS, strict=False):
        lines = read_metrics(path / "metrics.jsonl")
        if not lines:
            raise DataError(f"{path} has no finished update yet", fix="plot it again after its first update")
        name = path.name if names.count(path.name) == 1 else f"{path.parent.name}/{path.name}"
        runs.append(_Run(name, colour, lines))
    return runs


def _draw(runs: Sequence[_Run]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.2))
    panels = figure.subplots(2, 2)
    right, between = (0.87, 0.42) if len(runs) == 1 else (0.975, 0.2)  # labels beside the panels of a single run
    figure.subplots_adjust(left=_LEFT, right=right, top=0.85, bottom=0.075, wspace=between, hspace=0.42)
    last = max(line["step"] for run in runs for line in run.lines)
    for axes, panel in zip(panels.flat, _PANELS, strict=True):
        _draw_panel(axes, panel, runs, last)
    _head(figure, runs)
    for axes in panels[-1]:
        axes.set_xlabel("update", color=_GREY)
    return figure


def _head(figure: Figure, runs: Sequence[_Run]) -> None:
    """The names of the runs in their colours: the only legend."""
    from matplotlib.offsetbox import AnchoredOffsetbox, HPacker, TextArea, VPacker

    words: list[Artist] = [
        TextArea(run.name, textprops={"color": run.colour, "weight": "bold", "size": 11}) for run in runs
    ]
    rows: list[Artist] = [
        HPacker(children=words[at : at + _NAMES_PER_ROW], pad=0, sep=18) for at in range(0, len(words), _NAMES_PER_ROW)
    ]
    figure.add_artist(
        AnchoredOffsetbox(
            "upper left",
            child=VPacker(children=rows, pad=0, sep=5),
            pad=0,
            borderpad=0,
            frameon=False,
            bbox_to_anchor=(_LEFT, 0.97),
            bbox_transform=figure.transFigure,
        )
    )


def _draw_panel(axes: Axes, panel: _Panel, runs: Sequence[_Run], last: int) -> None:
    ends = [end for run in runs for curve in panel.curves if (end := _draw_curve(axes, run, curve)) is not None]
    axes.set_title(panel.title, loc="left", weight="bold", size=10.5, pad=8)
    subtitle = panel.marks if panel.marks and len(runs) > 1 else panel.unit
    axes.set_title(subtitle, loc="right", color=_GREY, size=8.5, pad=8)
    _scale(axes, panel, last)
    if not ends:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color=_GREY)
    if len(runs) == 1:
        _label_ends(axes, ends)


def _scale(axes: Axes, panel: _Panel, last: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_xlim(0, max(last, 1))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    if panel.from_zero:
        axes.set_ylim(bottom=0)
    if panel.percent:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}%"))
    axes.grid(axis="y")


def _draw_curve(axes: Axes, run: _Run, curve: _Curve) -> tuple[float, str, str] | None:
    """Draws it and returns the height, words and colour of the label at its end."""
    steps, values = run.points(curve.metric)
    if not steps:
        return None
    if curve.measured_at_times:
        axes.plot(steps, values, color=run.colour, lw=0.8, alpha=0.6, clip_on=False)
        axes.plot(steps, values, "o", color=run.colour, ms=4.5, mec="white", mew=0.8, clip_on=False, zorder=3)
    else:
        smooth = _smooth(values)
        axes.plot(steps, values, color=run.colour, lw=0.8, alpha=0.3)
        axes.plot(steps, smooth, color=run.colour, lw=1.8, ls=(0, (4, 2)) if curve.dashed else "-")
        if len(values) == 1:
            axes.plot(steps, values, "o", color=run.colour, ms=3.5, clip_on=False)
        values = smooth
    return values[-1], curve.label, run.colour


def _smooth(values: Sequence[float]) -> list[float]:
    """Centred mean over about a twentieth of the run: of 40 updates each three neighbours, of 400 each 21."""
    half = len(values) // 40
    windows = (values[max(0, at - half) : at + half + 1] for at in range(len(values)))
    return [sum(window) / len(window) for window in windows]


def _label_ends(axes: Axes, labels: Sequence[tuple[float, str, str]]) -> None:
    """Writes each label beside the end of its curve, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    # Of two curves that end together the one named first goes on top.
    named = sorted((label for label in reversed(labels) if label[1]), key=lambda label: label[0])
    heights = _spread([(value - low) / (high - low) for value, _, _ in named], _LABEL_GAP)
    for height, (_, words, colour) in zip(heights, named, strict=True):
        axes.text(1.02, height, words, transform=axes.transAxes, color=colour, va="center", size=8.5)


def _spread(heights: Sequence[float], gap: float) -> list[float]:
    """The ascending heights with at least `gap` between neighbours, moved as little up and down as each other."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + gap) if placed else height)
    shift = sum(new - old for new, old in zip(placed, heights, strict=True)) / max(len(placed), 1)
    return [height - shift for height in placed]
