"""Contestants side by side: a process for each, which loads once, warms up once, and then runs when it is its turn.

    parent                                    contestant, maybe under another Python
      Contestant(...)  ── starts ──>            loads, warms up
                       <── {"ready": ...} ──
      run(task)        ── a line of JSON ──>    runs it
                       <── {"seconds": ...} ──

Runs go A B A B on the same machine, and what counts is the median of the ratios of neighbours, so that a machine
that slows down or speeds up meanwhile does so for both. Contestants import nothing from here that is not in the
standard library: a peer's environment needs nothing but the peer.

Between its turns a contestant is stopped with all its processes, since some go on polling, and a few percent of a core
are enough to hold up another side's threads.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

Figures = dict[str, Any]
"""What one run came to, such as seconds and tokens."""

_FLAG = "--contestant"


class Requests:
    """A contestant's end of the line: iterating gives what to run; every task is answered once.

    Standard output is kept for the answers. Whatever else the process prints goes to standard error, so that a
    talkative library cannot break the line.
    """

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def ready(self, *packages: str) -> None:
        """Loaded and warm. packages: distributions whose versions are reported."""
        self._send({"ready": {name: version(name) for name in packages}})

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for line in sys.stdin:
            yield json.loads(line)

    def answer(self, figures: Figures) -> None:
        self._send(figures)

    def _send(self, message: Mapping[str, Any]) -> None:
        print(json.dumps(message), file=self._out, flush=True)


Serve = Callable[[dict[str, Any], Requests], None]
"""A contestant: given its options, it loads, says that it is ready, and answers until there are no more tasks."""


def serve_if_contestant(contestants: Mapping[str, Serve]) -> None:
    """Be the contestant that this process was started as, then exit; return at once in the parent."""
    if sys.argv[1:2] == [_FLAG]:
        name, options = sys.argv[2:]
        contestants[name](json.loads(options), Requests())
        sys.exit(0)


class Contestant:
    """A contestant's process, seen from the parent. Used as a context manager, so that it ends with the block."""

    def __init__(self, script: str, name: str, options: Mapping[str, Any], *, python: str | None = None) -> None:
        """script: the file that holds the contestant. python: the interpreter of the peer's environment."""
        self.name = name
        self.versions: dict[str, str] = {}
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [python or sys.executable, script, _FLAG, name, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "src"), "TOKENIZERS_PARALLELISM": "false"},
        )

    def __enter__(self) -> Self:
        try:
            self.versions = self._receive()["ready"]
            self._signal(signal.SIGSTOP)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._signal(signal.SIGCONT)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def run(self, **task: Any) -> Figures:
        """Run a task and wait for its figures; `peak_bytes`, the most memory held so far, is added to them."""
        assert self._process.stdin
        self._signal(signal.SIGCONT)
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        figures = self._receive() | {"peak_bytes": sum(map(_peak_bytes, _with_descendants(self._process.pid)))}
        self._signal(signal.SIGSTOP)
        return figures

    def _signal(self, number: signal.Signals) -> None:
        for pid in _with_descendants(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _receive(self) -> Figures:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            tail = "".join(self._log.readlines()[-20:])
            raise RuntimeError(f"{self.name} ended without an answer; its last words:\n{tail}")
        return json.loads(line)


def take_turns(turns: Sequence[tuple[Contestant, Mapping[str, Any]]], runs: int) -> list[list[Figures]]:
    """The figures of every run, by turn. turns: who runs what, one after the other, in every round."""
    rounds, started = [], time.monotonic()
    for number in range(1, runs + 1):
        rounds.append([contestant.run(**task) for contestant, task in turns])
        seconds = [f"{side.name} {run['seconds']:.1f} s" for (side, _), run in zip(turns, rounds[-1], strict=True)]
        show_round(", ".join(seconds), number, runs, started)
    return [list(figures) for figures in zip(*rounds, strict=True)]


def show_round(what: str, number: int, runs: int, started: float) -> None:
    """Say what a round brought, and when the last will be over. number: of this round, from 1. started: when the first
    began, by `time.monotonic`."""
    left = (time.monotonic() - started) / number * (runs - number)
    print(f"round {number} of {runs}: {what}; about {left / 60:.0f} min left", file=sys.stderr)


def _with_descendants(pid: int) -> list[int]:
    """A process and all that it and its descendants started; alone where there is no /proc."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        children = []
    return [pid, *(each for child in children for each in _with_descendants(child))]


def _peak_bytes(pid: int) -> int:
    """Peak resident memory of a process; 0 where there is no /proc."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
