"""How long a run goes: what is said of it beforehand, on its way, and at its end."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from pathlib import Path

from dapo.coordination.settings import RunSettings
from dapo.data.stream import PromptStream


@dataclass(frozen=True)
class Length:
    """The settings that end a run, held against its data."""

    run: RunSettings
    stream: PromptStream
    batch_size: int
    """Rows that an update takes at least."""
    filtering: bool
    """Whether an update may take more rows than that, so that the data's end is known only as a bound."""

    def last_update(self, updates: int, waiting: int = 0) -> int | None:
        """The update at which the data ends at the latest; None where it goes round without end.

        updates: made so far. waiting: rows that are drawn already but were not trained.
        """
        rest = self.stream.remaining
        return None if rest is None else updates + math.ceil((rest + waiting) / self.batch_size)

    def total(self, updates: int, waiting: int = 0) -> int | None:
        """Updates of the whole run, as far as they are known: max_steps, or the data's end if that comes first."""
        of_data, of_steps = self.last_update(updates, waiting), self.run.max_steps
        if of_data is None or (of_steps is None and self.filtering):
            return of_steps
        return of_data if of_steps is None else min(of_data, of_steps)

    def fact(self, updates: int, waiting: int = 0) -> str:
        """What ends the run, in a few words for its heading."""
        passes, of_data = self.run.passes, self.last_update(updates, waiting)
        ends = [] if self.run.max_steps is None else [f"{self.run.max_steps} updates"]
        if self.run.max_rollout_tokens is not None:
            ends.append(f"{self.run.max_rollout_tokens} answer tokens")
        if passes is None:
            return f"{' or '.join(ends)}; the data goes round as often as needed"
        bound = "at most " if self.filtering else ""
        ends.append(f"{passes} {plural('epoch', passes)} ({bound}{of_data} {plural('update', of_data or 0)})")
        return " or ".join(ends) + (", whichever comes first" if len(ends) > 1 else "")

    def warning(self, updates: int, waiting: int = 0) -> str | None:
        """What a person may not have meant, where it can be known beforehand: that max_steps will not be reached, or
        that one update holds the same row several times."""
        of_data, of_steps, passes = self.last_update(updates, waiting), self.run.max_steps, self.run.passes
        if passes is None and self.batch_size > len(self.stream):
            return (
                f"batch_size {self.batch_size} is more than the {len(self.stream)} rows of the data: an update takes "
                f"rows several times; lower batch_size, or set epochs to train on smaller updates"
            )
        if of_data is None or of_steps is None or passes is None or of_data >= of_steps:
            return None
        needed = math.ceil(of_steps * self.batch_size / len(self.stream))
        return (
            f"epochs {passes} ends the run before max_steps {of_steps}: {len(self.stream)} rows make at most "
            f"{of_data} {plural('update', of_data)} of {self.batch_size}; leave epochs out to go round until "
            f"max_steps, or use --epochs {max(needed, passes + 1)}"
        )

    def ending(self, command: str, folder: Path, updates: int, limit: str | None, *, fixed_end: bool = False) -> str:
        """What ended the run, after how many updates, and how to go on. limit: the setting; None for the data's end.

        fixed_end: a setting depends on where the run ends, so that going on is a change to be accepted.
        """
        made = f"{updates} {plural('update', updates)}"
        if limit is None:
            passes = self.run.passes or 1
            reason = f"the data ended, epochs is {passes}"
            further = f"--epochs {max(passes + 1, self._epochs_wanted(updates))}"
        else:
            value = getattr(self.run, limit)
            reason = f"{limit} {value} is reached"
            further = f"--{limit.replace('_', '-')} {2 * value}"
        accepted = " --allow-changes" if fixed_end else ""
        return f"ended after {made}: {reason}; go on with: {go_on(command, folder)} {further}{accepted}"

    def _epochs_wanted(self, updates: int) -> int:
        """Epochs that would bring the run to max_steps, at the rows an update took so far."""
        if self.run.max_steps is None or not updates:
            return 0
        return math.ceil(self.run.max_steps * self.stream.position / updates / len(self.stream))


class EpochNotices:
    """Says when the data goes round again: for the epochs 2 to 10, then for every tenth, then for every hundredth."""

    def __init__(self, stream: PromptStream) -> None:
        self._stream = stream
        self._said = self._present

    @property
    def _present(self) -> int:
        """The epoch of the newest draw, from 1."""
        return max(self._stream.position - 1, 0) // len(self._stream) + 1

    def new(self) -> str | None:
        """A line, if an epoch has begun that is worth one."""
        if self._present <= self._said:
            return None
        self._said = self._present
        return f"epoch {self._said} begins" if len(str(self._said).rstrip("0")) == 1 else None


def smaller_batch(update: int, rows: int, batch_size: int, unit: str) -> str:
    """That an update had to do with fewer rows, since the data ended."""
    return f"update {update} takes the last {rows} {unit} of the data, not {batch_size}"


def go_on(command: str, folder: Path) -> str:
    """The command that goes on with a run. command: of `dapo`."""
    return f"dapo {command} --resume {shlex.quote(str(folder))}"


def plural(noun: str, count: int) -> str:
    return noun if count == 1 else noun + "s"
