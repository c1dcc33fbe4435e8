"""Curves of one or several runs, read from their `metrics.jsonl`, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dapo.dashboard.curves import RunSet, read_run_sets
from dapo.errors import ConfigError, DapoError, DataError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's colours, told apart by colour-blind readers too; one per curve."""
_GREY = "#6b6b6b"
_NAME_FONT: dict[str, Any] = {"weight": "bold", "size": 11}
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
_LEFT = 0.6
"""Left edge of panels and names, in inches."""
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
    """What tells the curves apart where several run sets leave no room for labels at their ends."""
    curves: tuple[_Curve, ...]
    """The first that was measured carries the band."""
    percent: bool = False
    from_zero: bool = False


_PANELS = (
    _Panel(
        "Reward",
        "mean of all answers",
        "dots: held-out accuracy, line: training",
        (
            _Curve("heldout_accuracy", "held-out", measured_at_times=True),
            _Curve("candidate_reward_mean", "training"),
        ),
    ),
    _Panel("Entropy", "nats per token", "", (_Curve("entropy", ""),), from_zero=True),
    _Panel("Answer length", "tokens", "", (_Curve("response_length_mean", ""),), from_zero=True),
    _Panel(
        "All-right groups",
        "of generated groups",
        "",
        (_Curve("dapo_all_correct_share", ""),),
        percent=True,
        from_zero=True,
    ),
    _Panel(
        "Clip share",
        "of trained tokens",
        "solid: above, dashed: below",
        (_Curve("pg_clipfrac_upper", "above"), _Curve("pg_clipfrac_lower", "below", dashed=True)),
        percent=True,
        from_zero=True,
    ),
    _Panel(
        "Up-clipped tokens", "mean probability when drawn", "", (_Curve("up_clipped_prob_mean", ""),), from_zero=True
    ),
)
"""A panel is left out where no run has any of its metrics."""


def plot_runs(run_dirs: Sequence[Path], out: Path) -> list[Path]:
    """Draws reward, entropy, answer length, solved groups and clips over the updates; several runs in one picture.

    Runs that differ only in their seed are one curve, their mean, in a band. out: a name with or without `.png` or
    `.svg`; both files are written and returned, in this order. The same metrics give the same files. Raises ConfigError
    when matplotlib is missing, no run is given or there are more curves than colours, and DataError for a run
    without updates or without any of the metrics.
    """
    if not run_dirs:
        raise ConfigError("there is no run to plot", fix="name at least one run folder")
    sets = read_run_sets(run_dirs)
    if len(sets) > len(_COLOURS):
        raise ConfigError(
            f"{len(sets)} curves in one picture cannot be told apart",
            fix=f"plot at most {len(_COLOURS)}; runs that differ only in their seed are one",
        )
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
        figure = _draw(sets)
        try:
            stem.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(paths[0], dpi=160)
            figure.savefig(paths[1], metadata={"Date": None})
        except OSError as error:
            raise DapoError(
                f"cannot write the picture {stem}: {error.strerror or error}", fix="choose another --out"
            ) from error
    return paths


def _draw(sets: Sequence[RunSet]) -> Figure:
    from matplotlib.figure import Figure

    panels = [panel for panel in _PANELS if any(_measured(runs, curve) for runs in sets for curve in panel.curves)]
    if not panels:
        raise DataError(f"{sets[0].name} has none of the metrics that are drawn", fix="plot it after its first update")
    columns = min(len(panels), 2 if len(panels) in (2, 4) else 3)
    rows = -(-len(panels) // columns)
    heads = _heads(sets, columns)
    top = 0.6 + 0.22 * len(heads)
    width, height = 5.0 * columns, top + 2.7 * rows
    figure = Figure(figsize=(width, height))
    grid = figure.subplots(rows, columns, squeeze=False)
    alone = len(sets) == 1  # then its labels stand beside the panels
    figure.subplots_adjust(
        left=_LEFT / width,
        right=1 - (0.95 if alone else 0.25) / width,
        top=1 - top / height,
        bottom=0.48 / height,
        wspace=0.34 if alone else 0.2,
        hspace=0.42,
    )
    last = max(line["step"] for runs in sets for lines in runs.seeds for line in lines)
    for axes, panel in zip(grid.flat, panels, strict=False):
        _draw_panel(axes, panel, sets, last)
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    for axes in grid.flat[max(0, len(panels) - columns) : len(panels)]:
        axes.set_xlabel("update", color=_GREY)
    _draw_heads(figure, heads)
    return figure


def _measured(runs: RunSet, curve: _Curve) -> bool:
    return bool(runs.points(curve.metric, smooth=False).steps)


def _heads(sets: Sequence[RunSet], per_row: int) -> list[list[tuple[str, str]]]:
    """Words and colours above the panels, row by row: the names, which are the only legend, and what the bands are."""
    names = [(_title(runs), colour) for runs, colour in zip(sets, _COLOURS, strict=False)]
    rows = [names[at : at + per_row] for at in range(0, len(names), per_row)]
    bands = _bands(sets)
    return [*rows, [(bands, _GREY)]] if bands else rows


def _draw_heads(figure: Figure, heads: Sequence[Sequence[tuple[str, str]]]) -> None:
    from matplotlib.offsetbox import AnchoredOffsetbox, HPacker, TextArea, VPacker

    rows: list[Artist] = []
    for row in heads:
        words: list[Artist] = [
            TextArea(
                text, textprops={"color": colour, "size": 8.5} if colour == _GREY else {"color": colour, **_NAME_FONT}
            )
            for text, colour in row
        ]
        rows.append(HPacker(children=words, pad=0, sep=18))
    width, height = figure.get_size_inches()
    figure.add_artist(
        AnchoredOffsetbox(
            "upper left",
            child=VPacker(children=rows, pad=0, sep=5),
            pad=0,
            borderpad=0,
            frameon=False,
            bbox_to_anchor=(_LEFT / width, 1 - 0.19 / height),
            bbox_transform=figure.transFigure,
        )
    )


def _title(runs: RunSet) -> str:
    return runs.name if len(runs.seeds) == 1 else f"{runs.name} ({len(runs.seeds)} seeds)"


def _bands(sets: Sequence[RunSet]) -> str:
    """What the bands in the picture are; nothing where there is none."""
    counts = {len(runs.seeds) for runs in sets}
    kinds = [
        words
        for words, drawn in (
            ("95% interval of the mean over seeds (Student's t)", max(counts) > 2),
            ("range of 2 seeds", 2 in counts),
        )
        if drawn
    ]
    return f"band: {', or '.join(kinds)}" if kinds else ""


def _draw_panel(axes: Axes, panel: _Panel, sets: Sequence[RunSet], last: int) -> None:
    ends = []
    for runs, colour in zip(sets, _COLOURS, strict=False):
        measured = [curve for curve in panel.curves if _measured(runs, curve)]
        ends += [_draw_curve(axes, runs, curve, colour, first=curve is measured[0]) for curve in measured]
    axes.set_title(panel.title, loc="left", weight="bold", size=10.5, pad=8)
    subtitle = panel.marks if panel.marks and len(sets) > 1 else panel.unit
    axes.set_title(subtitle, loc="right", color=_GREY, size=8.5, pad=8)
    _scale(axes, panel, last)
    if len(sets) == 1:
        _label_ends(axes, ends)


def _scale(axes: Axes, panel: _Panel, last: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_xlim(0, max(last, 1))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    if panel.from_zero:
        axes.set_ylim(0, 1.04 * axes.get_ylim()[1])
    if panel.percent:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}%"))
    axes.grid(axis="y")


def _draw_curve(axes: Axes, runs: RunSet, curve: _Curve, colour: str, *, first: bool) -> tuple[float, str, str]:
    """Draws it and returns the height, words and colour of the label at its end."""
    points = runs.points(curve.metric, smooth=not curve.measured_at_times)
    alone = len(runs.seeds) == 1
    if first and not alone:
        axes.fill_between(points.steps, points.low, points.high, color=colour, alpha=0.15, lw=0)
    if curve.measured_at_times:
        axes.plot(points.steps, points.middle, color=colour, lw=0.8, alpha=0.6, clip_on=False)
        axes.plot(points.steps, points.middle, "o", color=colour, ms=4.5, mec="white", mew=0.8, clip_on=False, zorder=3)
    else:
        if alone:
            axes.plot(points.steps, runs.points(curve.metric, smooth=False).middle, color=colour, lw=0.8, alpha=0.3)
        width = 1.8 if first or alone else 1.0
        axes.plot(points.steps, points.middle, color=colour, lw=width, ls=(0, (4, 2)) if curve.dashed else "-")
        if len(points.steps) == 1:
            axes.plot(points.steps, points.middle, "o", color=colour, ms=3.5, clip_on=False)
    return points.middle[-1], curve.label, colour


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
