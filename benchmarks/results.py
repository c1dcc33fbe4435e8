"""What a comparison came to: one table on the screen, and the same as a section of RESULTS.md."""

from __future__ import annotations

import argparse
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).with_name("RESULTS.md")
_COLUMNS = ("", "dapo", "compared with", "result", "target", "reached")


@dataclass(frozen=True)
class Row:
    """One comparison. What falls short stays in the table with its target and the reason."""

    what: str
    ours: str
    against: str
    """Who or what it is compared with, and its figure."""
    result: float
    unit: str = "x"
    """Written behind result and target: x for a ratio, %, s, ..."""
    at_least: float | None = None
    at_most: float | None = None
    """The target; none: for information."""
    reason: str = "not explained yet"
    """Why the target is not reached; shown only then."""

    @property
    def cells(self) -> tuple[str, ...]:
        sign, target = ("at most", self.at_most) if self.at_least is None else ("at least", self.at_least)
        wanted = "" if target is None else f"{sign} {target:g}{self.unit}"
        return self.what, self.ours, self.against, f"{self.result:.3g}{self.unit}", wanted, self._reached

    @property
    def _reached(self) -> str:
        if self.at_least is None and self.at_most is None:
            return ""
        short = (self.at_least is not None and self.result < self.at_least) or (
            self.at_most is not None and self.result > self.at_most
        )
        return f"no: {self.reason}" if short else "yes"


def ratio(above: Sequence[Mapping[str, Any]], below: Sequence[Mapping[str, Any]], name: str = "seconds") -> float:
    """Median over the paired runs of one contestant's figure over another's."""
    return median(one[name] / other[name] for one, other in zip(above, below, strict=True))


def middle(runs: Sequence[Mapping[str, Any]], name: str = "seconds") -> float:
    """Median of a figure over the runs."""
    return median(run[name] for run in runs)


def rate(runs: Sequence[Mapping[str, Any]]) -> str:
    """Median tokens per second, as text."""
    return f"{median(run['tokens'] / run['seconds'] for run in runs):.0f} tokens/s"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options that every comparison has."""
    parser.add_argument("--runs", type=int, default=5, help="runs of each contestant, in turns (default 5)")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: whether it runs, not how fast; writes nothing")


def report(title: str, rows: Sequence[Row], facts: Mapping[str, str], *, write: bool) -> None:
    """Print the table, and unless told otherwise put it into RESULTS.md in the place of its last version."""
    facts = {"date": date.today().isoformat(), "machine": machine()} | dict(facts)
    table = Table(title=title)
    for column in _COLUMNS:
        table.add_column(column)
    for row in rows:
        table.add_row(*row.cells)
    console = Console()
    console.print(table)
    for name, value in facts.items():
        console.print(f"{name}: {value}", markup=False, highlight=False)
    if write:
        RESULTS.write_text(_with_section(RESULTS.read_text() if RESULTS.exists() else "", title, rows, facts))


def _with_section(text: str, title: str, rows: Sequence[Row], facts: Mapping[str, str]) -> str:
    """The page with the section of this title replaced, or added at its end."""
    lines = [f"## {title}", "", _markdown(_COLUMNS), _markdown(["---"] * len(_COLUMNS))]
    lines += [_markdown(row.cells) for row in rows]
    lines += ["", *(f"- {name}: {value}" for name, value in facts.items()), ""]
    section = "\n".join(lines)
    head, *sections = re.split(r"(?m)^(?=## )", text or "# Results\n\nWritten by the scripts of this folder.\n\n")
    kept = [old.rstrip() + "\n" for old in sections]
    place = next((number for number, old in enumerate(kept) if old.startswith(f"## {title}\n")), len(kept))
    kept[place : place + 1] = [section]
    return head + "\n".join(kept)


def _markdown(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def machine() -> str:
    """Processor, cores, memory, and how busy it was: a busy machine's figures are worth little."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    model = re.search(r"model name\s*:\s*(.+)", text)
    flags = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if re.search(rf"\b{flag}\b", text)]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    name = model.group(1).strip() if model else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, {' '.join(flags)}, {memory:.0f} GiB, Python {platform.python_version()}"


def load_at_start() -> str:
    """Call before anything is started: processes that already ran, as the average of the last minute."""
    return f"{os.getloadavg()[0]:.1f} processes were running before the start"


def versions(reported: Mapping[str, Mapping[str, str]]) -> str:
    """What each side runs on: side -> package -> version."""
    return "; ".join(
        f"{side}: {', '.join(f'{name} {number}' for name, number in packages.items())}"
        for side, packages in reported.items()
    )
