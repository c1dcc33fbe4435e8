"""A file of one JSON object per line, in the order of the run's updates.

Shared by `metrics.jsonl` and `rollouts.jsonl`. What always holds: a line is valid JSON and UTF-8 whatever a model or a
reward wrote into it; a failed write leaves no half line behind; a kill in the middle of one is mended by the
next write and ignored by every reader.
"""

from __future__ import annotations

import io
import json
import math
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dapo.errors import DapoError, DataError


class JsonLines:
    """The file at `path`, made by the first append. Holds no open handle between calls."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, step: int, record: Mapping[str, Any]) -> None:
        """Adds one line that begins with `step`, the number of updates made. Raises DapoError naming the file."""
        line = encode({"step": step, **record})
        try:
            with self.path.open("a+b", buffering=0) as file:
                end = _cut_half_line(file)
                try:
                    _write_all(file, line)
                except OSError:
                    with suppress(OSError):  # the first error is the one to tell
                        file.truncate(end)
                    raise
        except OSError as error:
            raise self._cannot_write(error) from error

    def truncate_after(self, step: int) -> None:
        """Forgets the lines of later updates than `step`: used when a run goes back to a checkpoint.

        Lines come in the order of the updates, so those to forget are the last ones and one truncation, which a
        kill cannot split, removes them. Only they are read, however long the file is.
        """
        if not self.path.exists():
            return
        try:
            with self.path.open("r+b") as file:
                file.truncate(_end_of_step(file, step))
                os.fsync(file.fileno())
        except OSError as error:
            raise self._cannot_write(error) from error

    def _cannot_write(self, error: OSError) -> DapoError:
        return DapoError(
            f"cannot write {self.path}: {error.strerror or error}",
            fix="free the disk or mend the folder's permissions, then go on with --resume",
        )


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The records of the file. A half-written last line is left out; a broken one elsewhere is a DataError."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return
                record = _parsed(line)
                if record is None:
                    raise DataError(f"{path}, line {number} is not a JSON object", fix=f"remove line {number}")
                yield record
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror or error}", fix="give the folder of a run that made an update"
        ) from error


def encode(record: Mapping[str, Any]) -> bytes:
    """The record as one line. Non-finite floats become null, foreign objects their plain value or text."""
    try:
        text = json.dumps(record, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        text = json.dumps(_plain(record), ensure_ascii=False, allow_nan=False)
    # Half of a surrogate pair has no UTF-8 form; a backslash escape is what JSON has for it.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _plain(value: Any) -> Any:
    """The value in JSON's own types."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tolist"):  # NumPy scalars and arrays, tensors
        return _plain(value.tolist())
    return str(value)


def _write_all(file: io.FileIO, line: bytes) -> None:
    """A nearly full disk takes part of the line and refuses the rest with the next call."""
    rest = memoryview(line)
    while rest:
        rest = rest[file.write(rest) :]


def _cut_half_line(file: io.FileIO) -> int:
    """Removes what a killed write left after the last line end. Returns the size of the file."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return 0
    file.seek(-1, os.SEEK_END)
    if file.read(1) == b"\n":
        return size
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        end = view.rfind(b"\n") + 1
    file.truncate(end)
    return end


def _end_of_step(file: io.BufferedRandom, step: int) -> int:
    """The position after the last line whose step is at most `step`; unreadable lines after it do not count."""
    if file.seek(0, os.SEEK_END) == 0:
        return 0
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        end = view.rfind(b"\n") + 1
        while end > 0:
            start = view.rfind(b"\n", 0, end - 1) + 1
            record = _parsed(view[start : end - 1])
            if record is not None and record["step"] <= step:
                break
            end = start
    return end


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None
