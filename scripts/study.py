"""The runs of a study: several settings, several seeds, one `dapo train` each; stopped at any time, it goes on.

Runs are made side by side, each in a process of its own that gets its share of the cores. A run that was interrupted
goes on from its newest checkpoint. Of a finished one settings and metrics are kept in `<results>/<row>/<seed>`, which
is also what says that it is finished; model and answers are removed.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from dapo.dashboard.curves import band
from dapo.tracking.metrics_log import read_metrics

Metrics = list[dict[str, Any]]
"""The lines of a run's metrics.jsonl."""
POLL_S = 2.0


@dataclass(frozen=True)
class StudyRun:
    """One run of a study."""

    row: str
    """What it is a sample of; a word that can be a file's name."""
    seed: int
    recipe: Path
    updates: int
    flags: tuple[str, ...] = ()
    """What the row changes, as words of the command line."""

    @property
    def name(self) -> str:
        return f"{self.row}/{self.seed}"


@dataclass(frozen=True)
class Study:
    """Where runs are made and where their metrics go."""

    runs: Sequence[StudyRun]
    scratch: Path
    """Folder of the unfinished runs."""
    results: Path
    """Folder of the metrics of the finished ones."""

    def make(self, at_once: int) -> None:
        """Make every run that is not finished. Raises SystemExit, naming its log, when one fails."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.results.mkdir(parents=True, exist_ok=True)
        waiting = self.unfinished
        running: dict[StudyRun, subprocess.Popen[bytes]] = {}
        before = sum(self._updates(run) for run in self.runs)
        started = time.monotonic()
        with _ended_with_us(running), Live(refresh_per_second=1) as live:
            while waiting or running:
                while waiting and len(running) < at_once:
                    running[waiting[0]] = self._start(waiting[0], max(1, (os.cpu_count() or 1) // at_once))
                    waiting.pop(0)
                time.sleep(POLL_S)
                for run in [run for run, process in running.items() if process.poll() is not None]:
                    self._finish(run, running.pop(run).returncode)
                live.update(self._progress(running, before, time.monotonic() - started))

    @property
    def unfinished(self) -> list[StudyRun]:
        """In the order in which they are made."""
        return [run for run in self.runs if not self.result(run).exists()]

    def metrics(self, row: str) -> list[Metrics]:
        """Of each seed of a row, in the order of the runs."""
        return [read_metrics(self.result(run) / "metrics.jsonl") for run in self.runs if run.row == row]

    def result(self, run: StudyRun) -> Path:
        """What is kept of a finished run: a run folder with nothing but settings and metrics."""
        return self.results / run.name

    def _folder(self, run: StudyRun) -> Path:
        return self.scratch / run.name

    def _log(self, run: StudyRun) -> Path:
        return self._folder(run).with_suffix(".log")

    def _start(self, run: StudyRun, threads: int) -> subprocess.Popen[bytes]:
        folder = self._folder(run)
        command = [sys.executable, "-m", "dapo.cli.main", "train"]
        if any((folder / "checkpoints").glob("*")):
            command += ["--resume", str(folder)]
        else:
            shutil.rmtree(folder, ignore_errors=True)
            command += [str(run.recipe), "--save-path", str(folder), "--seed", str(run.seed)]
            command += ["--max-steps", str(run.updates)]
            command += run.flags
        folder.parent.mkdir(parents=True, exist_ok=True)
        with self._log(run).open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": str(threads)})

    def _finish(self, run: StudyRun, exit_code: int) -> None:
        if exit_code:
            raise SystemExit(f"{run.name} ended with exit code {exit_code}: see {self._log(run)}")
        aside = self.result(run).with_suffix(".part")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        for name in ("config.toml", "metrics.jsonl"):
            shutil.copy(self._folder(run) / name, aside)
        aside.rename(self.result(run))
        shutil.rmtree(self._folder(run))
        self._log(run).unlink()

    def _updates(self, run: StudyRun) -> int:
        """Updates made so far."""
        if self.result(run).exists():
            return run.updates
        file = self._folder(run) / "metrics.jsonl"
        if not file.exists():
            return 0
        lines = file.read_bytes().splitlines()
        # The last line may be half written; a run's first line can be the measurement before it.
        return min(run.updates, max(0, len(lines) - 1))

    def _progress(self, running: Mapping[StudyRun, Any], before: int, seconds: float) -> RenderableType:
        done, total = sum(self._updates(run) for run in self.runs), sum(run.updates for run in self.runs)
        finished = sum(self.result(run).exists() for run in self.runs)
        left = (total - done) * seconds / (done - before) if done > before else None
        head = f"{finished} of {len(self.runs)} runs, {done} of {total} updates"
        if left is not None:
            head += f", about {left / 60:.0f} min left"
        lines = [f"  {run.name}: update {self._updates(run)} of {run.updates}" for run in running]
        return Group(Text(head, style="bold"), *(Text(line) for line in lines))


def interval(values: Sequence[float], form: str = ".1%", bounds: tuple[float, float] = (-math.inf, math.inf)) -> str:
    """The mean over seeds and its 95% interval, cut at what can be."""
    low, high = (min(max(edge, bounds[0]), bounds[1]) for edge in band(values))
    return f"{mean(values):{form}} ({low:{form}} to {high:{form}})"


def table_line(*cells: str) -> str:
    """A line of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


@contextmanager
def _ended_with_us(running: Mapping[StudyRun, subprocess.Popen[bytes]]) -> Iterator[None]:
    """Whatever ends this process asks the runs to save and stop."""
    try:
        yield
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()
