"""The live screen of a terminal. All curves and bars share one width, so that a bar's end and a curve's end agree."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dapo.tracking.display import REINFORCED, CollectionProgress, Outcome, View, before_after_table, printable
from dapo.tracking.metrics import METRICS, MetricValue
from dapo.tracking.numbers import compact, count, duration, rough
from dapo.tracking.pace import Pace
from dapo.tracking.sparkline import sparkline

_FRAMES_PER_SECOND = 4
_LABEL_WIDTH = 12
_TABLE_ROWS = 8
_LINES_BESIDE_TABLE = 15
"""Header, bars, curves and blank lines: what is left of the terminal's height is the table's."""
_UNKNOWN_TOTAL = 50
"""Updates that a curve's width stands for, at first, when the number of updates is not known."""

_CURVE_STYLES = ("cyan", "green")
_SHOWN_FROM = {"entropy": 80, "pg_clipfrac": 90, "rollout_tokens_per_s": 70, "perplexity": 80, "lr": 70}
"""Metric -> the terminal width from which its column is shown; the others always are."""
_KEPT_AT = 3
"""Column of the groups kept, the only cell made of two metrics."""

_Row = tuple[int, Mapping[str, MetricValue]]
_Line = tuple[str, RenderableType, list[str]]
"""Label, bar or curve, and words in the order of their weight: a narrow terminal drops the last ones."""


class LiveDisplay:
    """A calm screen, drawn four times a second by rich's own thread from what the run loop last said.

    The loop only assigns; what the drawing thread reads is replaced as a whole, never changed in place.
    """

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._live = Live(self, console=console, refresh_per_second=_FRAMES_PER_SECOND)
        self._pace = Pace()
        self._title, self._facts = "", Text()
        self._total: int | None = None
        self._started = clock()
        self._done = 0
        self._activity: CollectionProgress | tuple[str, int, int, str] | None = None
        self._view = REINFORCED
        self._curve_values: dict[str, dict[int, float]] = {name: {} for _, name in REINFORCED.curves}
        """Metric -> update -> value."""
        self._rows: tuple[_Row, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def start(self, title: str, facts: Mapping[str, str], total_steps: int | None, view: View = REINFORCED) -> None:
        self._title, self._total, self._view = printable(title), total_steps, view
        self._curve_values = {name: {} for _, name in view.curves}
        self._facts = Text()
        for name, value in facts.items():
            # A fact stays in one piece when the line wraps.
            self._facts.append(f"{_unbroken(name)}\N{NO-BREAK SPACE}", style="dim")
            self._facts.append(f"{_unbroken(value)}   ")
        self._started = self._clock()
        self._pace.begin(self._started)
        self._live.start()

    def collecting(self, progress: CollectionProgress) -> None:
        self._activity = progress
        self._done = progress.step - 1  # a resumed run has made updates that this display never saw

    def updating(self, done: int, total: int) -> None:
        self._activity = ("training", done, total, "passes")

    def evaluating(self, done: int, total: int) -> None:
        self._activity = ("evaluating", done, total, "answers")

    def step_done(self, step: int, metrics: Mapping[str, MetricValue]) -> None:
        now = self._clock()
        if step == 0:
            self._pace.begin(now)
        else:
            self._pace.update_done(now)
        self._done = step
        for name, curve in self._curve_values.items():
            value = metrics.get(name)
            if value is not None and math.isfinite(value):
                curve[step] = value
        self._rows = (*self._rows[1 - _TABLE_ROWS :], (step, dict(metrics)))

    def notice(self, text: str) -> None:
        self._console.print(Text(printable(text)))

    def warning(self, text: str) -> None:
        self._console.print(Text.assemble(("warning: ", "bold magenta"), printable(text)))

    def finish(self, outcome: Outcome) -> None:
        self._activity = None
        self._live.stop()
        self._console.print(before_after_table(outcome))
        if outcome.ending:
            self._console.print()
            # Never broken by us, so that the command in it can be pasted.
            self._console.print(Text(printable(outcome.ending)), soft_wrap=True)

    def __rich__(self) -> RenderableType:
        """The screen as it is now."""
        header = Text.assemble(("dapo  ", "bold green"), (self._title, "bold"))
        parts: list[RenderableType] = [Text(), header, self._facts, Text(), self._lines()]
        if self._rows:
            parts += [Text(), self._table()]
        return Group(*parts, Text())

    def _lines(self) -> RenderableType:
        bar = max(12, min(44, self._console.width - 56))
        words = max(10, self._console.width - _LABEL_WIDTH - bar - 4)
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="dim", width=_LABEL_WIDTH - 2, no_wrap=True)
        grid.add_column(width=bar, no_wrap=True)
        grid.add_column(no_wrap=True, overflow="ellipsis")
        for label, drawing, parts in (self._progress(bar), *self._activity_lines(bar), *self._curves(bar)):
            grid.add_row(label, drawing, Text(_fit(parts, words)))
        return grid

    def _progress(self, bar: int) -> _Line:
        now = self._clock()
        parts = [f"{self._done} done" if self._total is None else f"{self._done} of {self._total}"]
        left = None if self._total is None else self._pace.remaining(now, self._total - self._done)
        if left:
            parts.append(f"about {rough(left)} left")
        parts.append(f"{duration(now - self._started)} so far")
        return "updates", "" if self._total is None else _bar(self._done, self._total, bar), parts

    def _activity_lines(self, bar: int) -> tuple[_Line, ...]:
        """Always two lines, so that nothing below them jumps."""
        activity = self._activity
        blank: _Line = ("", "", [])
        if activity is None:
            return (blank, blank)
        if not isinstance(activity, CollectionProgress):
            label, done, total, unit = activity
            return ((label, _bar(done, total, bar), [f"{done} of {total} {unit}"]), blank)
        rate = activity.tokens_per_s
        groups = [
            f"{activity.groups_kept} of {activity.groups_needed} groups",
            f"round {activity.round} of {activity.max_rounds}",
        ]
        answers = [f"{activity.sequences_done} of {activity.sequences_total}"]
        if rate is not None:
            answers.append(f"{compact(rate)} tok/s")
        if activity.groups_generated:
            groups.append(f"{activity.groups_generated} tried")
            answers.append(f"all right {activity.all_correct}, all wrong {activity.all_wrong}")
        return (
            ("collecting", _bar(activity.groups_kept, activity.groups_needed, bar), groups),
            ("answers", _bar(activity.sequences_done, activity.sequences_total, bar), answers),
        )

    def _curves(self, bar: int) -> list[_Line]:
        lines: list[_Line] = []
        total = self._total or max(_UNKNOWN_TOTAL, self._done)
        for (label, name), style in zip(self._view.curves, _CURVE_STYLES, strict=True):
            seen = self._curve_values[name].copy()  # the run loop may add to it meanwhile
            if seen:
                first, last = seen[min(seen)], seen[max(seen)]
                words = [METRICS[name].text(last)]
                if len(seen) > 1:
                    words.append(f"from {METRICS[name].text(first)}")
                lines.append((label, Text(sparkline(seen, total=total, width=bar), style=style), words))
        return [("", "", []), *lines] if lines else []

    def _table(self) -> RenderableType:
        columns = [
            (label, name) for label, name in self._view.columns if self._console.width >= _SHOWN_FROM.get(name, 0)
        ]
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
        headers = ["update", *(label for label, _ in columns)]
        if self._view.groups:
            headers.insert(_KEPT_AT, "kept")
        for header in headers:
            table.add_column(header, justify="right", no_wrap=True)
        shown = max(1, min(_TABLE_ROWS, self._console.height - _LINES_BESIDE_TABLE))
        for step, metrics in self._rows[-shown:]:
            cells = [str(step), *(METRICS[name].text(metrics.get(name)) for _, name in columns)]
            if self._view.groups:
                cells.insert(_KEPT_AT, _kept(metrics))
            table.add_row(*cells, style="bold" if step == self._done else None)
        return table


def _unbroken(text: str) -> str:
    return printable(text).replace(" ", "\N{NO-BREAK SPACE}")


def _bar(done: int, total: int, width: int) -> ProgressBar:
    return ProgressBar(
        total=max(total, 1), completed=done, width=width, style="dim", complete_style="green", finished_style="green"
    )


def _fit(parts: list[str], width: int) -> str:
    """As many parts as the width allows, but always the first."""
    text = "".join(parts[:1])
    for part in parts[1:]:
        if len(text) + len(part) + 3 > width:
            break
        text += f" · {part}"
    return text


def _kept(metrics: Mapping[str, MetricValue]) -> str:
    kept, generated = metrics.get("dapo_qualified_groups"), metrics.get("dapo_generated_groups")
    return "-" if kept is None or generated is None else f"{count(kept)} of {count(generated)}"
