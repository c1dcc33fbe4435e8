"""How far an evaluation is: a bar in a terminal, elsewhere a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self, TextIO

from dapo.tracking.display import printable
from dapo.tracking.numbers import compact, rough

if TYPE_CHECKING:
    from rich.progress import Progress

_QUIET_SECONDS = 30.0


class EvalProgress:
    """Told what happens, shows it. A context manager, so that the terminal is given back."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console

        # A file or pipe has no width: the tables fit this one, and lines are left as long as they are.
        width = None if stream.isatty() else 120
        self.console = Console(file=stream, highlight=False, width=width)
        self._clock = clock
        self._bar: Progress | None = None
        self._total = 0
        self._started = self._last_line = clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def notice(self, text: str) -> None:
        """Something worth knowing."""
        self._last_line = self._clock()
        self.console.print(printable(text), markup=False, soft_wrap=True)

    def begin(self, total: int) -> None:
        """`total` answers are about to be written."""
        from rich.progress import BarColumn, Progress, TextColumn

        self._total, self._started = total, self._clock()
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            self._bar = Progress(BarColumn(), TextColumn("{task.description}"), console=self.console, transient=True)
            self._bar.add_task(f"0 of {total} answers", total=total)
            self._bar.start()

    def advance(self, done: int, tokens: int) -> None:
        """`done` answers are finished, and `tokens` tokens drawn. Called for every token."""
        now = self._clock()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, description=self.words(done, tokens, now))
        elif now - self._last_line >= _QUIET_SECONDS:
            self.notice(self.words(done, tokens, now))

    def words(self, done: int, tokens: int, now: float) -> str:
        """`12 of 64 answers, 310 tok/s, about 2 min left`, as far as it can be known."""
        seconds = now - self._started
        parts = [f"{done} of {self._total} answers"]
        if seconds > 0:
            parts.append(f"{compact(tokens / seconds)} tok/s")
        if 0 < done < self._total:
            parts.append(f"about {rough(seconds / done * (self._total - done))} left")
        return ", ".join(parts)
