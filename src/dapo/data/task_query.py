"""The query behind a procedural task's name, and the share of its problems that is held out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from urllib.parse import parse_qsl

from dapo.errors import DataError

DEFAULT_ROWS = 1000
SPLITS = ("train", "heldout", "all")
PARTS = 5
"""One problem in so many is held out."""


@dataclass(frozen=True)
class TaskQuery:
    """`rows=500&split=heldout&seed=1` and what else a task takes."""

    task: str
    """The whole `task:...` text, for messages."""
    rows: int | None
    """How many problems; None leaves it to the task."""
    split: str
    """`train` and `heldout` never share a problem, whatever the seeds; `all` is both."""
    seed: int
    """Chooses the problems and their order, not which ones are held out."""
    others: dict[str, str]
    """The keys that only this task knows."""

    def only(self, *keys: str) -> None:
        """Raises DataError when `others` holds a key that is not one of the task's."""
        unknown = self.others.keys() - set(keys)
        if unknown:
            known = ", ".join((*keys, "rows", "split", "seed"))
            raise DataError(f"{self.task}: unknown key {min(unknown)!r}", fix=f"the keys are {known}")

    def integer(self, key: str, default: int, *, least: int, most: int) -> int:
        return _integer(self.task, key, self.others.get(key, str(default)), least=least, most=most)


def parse_query(task: str, query: str) -> TaskQuery:
    """Reads `key=value&...`; a + stands for itself, not for a space."""
    try:
        pairs = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError as error:
        raise DataError(f"{task}: cannot read {query!r}", fix="write it as key=value&key=value") from error
    values: dict[str, str] = {}
    for key, value in pairs:
        if key in values:
            raise DataError(f"{task}: {key} is given twice", fix="give it once")
        values[key] = value
    rows = values.pop("rows", None)
    split = values.pop("split", "train")
    seed = values.pop("seed", "0")
    if split not in SPLITS:
        raise DataError(f"{task}: split is {split!r}", fix=f"use one of {', '.join(SPLITS)}")
    return TaskQuery(
        task=task,
        rows=None if rows is None else _integer(task, "rows", rows, least=1, most=10**8),
        split=split,
        seed=_integer(task, "seed", seed, least=0, most=2**31),
        others=values,
    )


def part_of(problem: str) -> int:
    """A number from 0 to PARTS - 1 that depends on the text only, on every machine."""
    return int.from_bytes(hashlib.blake2b(problem.encode(), digest_size=8).digest(), "big") % PARTS


def _integer(task: str, key: str, text: str, *, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 12 or not least <= int(text) <= most:
        raise DataError(f"{task}: {key} is {text!r}", fix=f"give a whole number from {least} to {most}")
    return int(text)
