"""Plain lines for logs, pipes and simple terminals."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Self, TextIO

from dapo.tracking.display import REINFORCED, CollectionProgress, Outcome, View, before_after_table, printable
from dapo.tracking.metrics import MetricValue, metric
from dapo.tracking.numbers import compact, rough
from dapo.tracking.pace import Pace

_QUIET_SECONDS = 30.0
"""A progress line appears after this long without any line: a log shows life and stays short."""


class PlainDisplay:
    """One line per update, and a sign of life every 30 s. No control characters.

    A reader that goes away (a closed pipe, a full disk under a redirected log) does not stop the run, whose results
    are in its folder: the display falls silent.
    """

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._pace = Pace()
        self._total: int | None = None
        self._view = REINFORCED
        self._silent = False
        self._last_line = clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def start(self, title: str, facts: Mapping[str, str], total_steps: int | None, view: View = REINFORCED) -> None:
        self._total, self._view = total_steps, view
        self._line(title)
        width = max((len(name) for name in facts), default=0)
        for name, value in facts.items():
            self._line(f"  {name:{width}}  {value}")
        self._pace.begin(self._clock())

    def collecting(self, progress: CollectionProgress) -> None:
        if self._quiet():
            rate = progress.tokens_per_s
            self._line(
                f"{self._update(progress.step)}  collecting: "
                f"{progress.groups_kept} of {progress.groups_needed} groups, "
                f"round {progress.round} of {progress.max_rounds}, "
                f"{progress.sequences_done} of {progress.sequences_total} answers"
                + ("" if rate is None else f", {compact(rate)} tok/s")
            )

    def updating(self, done: int, total: int) -> None:
        if self._quiet():
            self._line(f"training: {done} of {total} passes")

    def evaluating(self, done: int, total: int) -> None:
        if self._quiet():
            self._line(f"evaluating: {done} of {total} answers")

    def step_done(self, step: int, metrics: Mapping[str, MetricValue]) -> None:
        now = self._clock()
        if step == 0:
            self._pace.begin(now)
        else:
            self._pace.update_done(now)
        if now - self._last_line < self._view.line_seconds and step != self._total and not _measured(metrics):
            return
        parts = [self._update(step)]
        for label, name in self._view.columns:
            if metrics.get(name) is not None:
                parts.append(f"{label} {metric(name).text(metrics[name])}")
        generated = metrics.get("dapo_generated_groups")
        if generated is not None:
            kept = metric("dapo_qualified_groups").text(metrics.get("dapo_qualified_groups"))
            parts.insert(2, f"kept {kept}/{metric('dapo_generated_groups').text(generated)}")
        left = None if self._total is None else self._pace.remaining(now, self._total - step)
        if left:
            parts.append(f"about {rough(left)} left")
        self._line("  ".join(parts))

    def notice(self, text: str) -> None:
        self._line(text)

    def warning(self, text: str) -> None:
        self._line(f"warning: {text}")

    def finish(self, outcome: Outcome) -> None:
        from rich.console import Console

        # Captured, so that every line leaves through the same door: plain, encodable, and silent when nobody reads.
        console = Console(width=100, color_system=None, force_terminal=False, highlight=False)
        with console.capture() as capture:
            console.print(before_after_table(outcome))
        for line in capture.get().splitlines():
            self._line(line.rstrip())
        if outcome.ending:
            self._line("")
            self._line(outcome.ending)

    def _update(self, step: int) -> str:
        width = len(str(self._total or ""))
        return f"update {step:{width}}" + ("" if self._total is None else f"/{self._total}")

    def _quiet(self) -> bool:
        return self._clock() - self._last_line >= _QUIET_SECONDS

    def _line(self, text: str) -> None:
        self._last_line = self._clock()
        if self._silent:
            return
        encoding = self._stream.encoding or "utf-8"
        try:
            self._stream.write(printable(text).encode(encoding, "replace").decode(encoding) + "\n")
            self._stream.flush()
        except OSError:
            self._silent = True


def _measured(metrics: Mapping[str, MetricValue]) -> bool:
    return any(name.startswith("heldout_") for name in metrics)
