"""Reads rows from a file, and from whatever else `dataset_path` may name.

Files are untrusted: whatever is in them, a reader returns rows or raises DataError. Nothing is unpickled and no
code that came with the data is run.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dapo.data.hub import MODEL_HUBS, load_from_hub, load_saved_folder
from dapo.errors import ConfigError, DataError
from dapo.places import is_path, nearest_place
from dapo.wording import first_line


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row as the source holds it."""

    place: str
    """Where a person finds it: `line 12` of a jsonl file, counted from 1 with blank lines; elsewhere `row 12`."""
    columns: dict[str, Any]
    """Column name to value."""


_CONTENTS = {
    re.compile(rb"\x1f\x8b"): ("gzip", "unpack it with gunzip"),
    re.compile(rb"PK\x03\x04"): ("a zip archive", "unpack it"),
    re.compile(rb"\x28\xb5\x2f\xfd"): ("zstd", "unpack it with unzstd"),
    re.compile(rb"BZh[1-9]1AY"): ("bzip2", "unpack it with bunzip2"),
    re.compile(rb"\xfd7zXZ\x00"): ("xz", "unpack it with unxz"),
    re.compile(rb"PAR1"): ("parquet", "rename it to .parquet"),
    re.compile(rb"ARROW1"): ("Arrow", "load it with `datasets` and save it as parquet"),
    re.compile(rb"\x80[\x02-\x05]"): ("a Python pickle", "save it as jsonl; pickles are never loaded"),
    re.compile(rb"\xff\xfe|\xfe\xff"): ("UTF-16 text", "save it as UTF-8"),
}


def read_rows(path: str, *, model_hub: str = "hf") -> list[RawRow]:
    """The rows of a json, jsonl, csv or parquet file, a `datasets` folder or a hub id `repo[:config[:split]]`.

    What exists locally is read locally; what looks like a file and does not exist is an error and never asked of
    a hub. Raises DataError when the source is missing, unreadable, malformed or without rows.
    """
    if model_hub not in MODEL_HUBS:
        raise ConfigError(f"model_hub is {model_hub!r}", fix=f"use one of {', '.join(MODEL_HUBS)}")
    local = _existing(path)
    if local is None:
        if looks_like_a_file(path):
            raise _missing(path)
        rows = _numbered(load_from_hub(path, model_hub))
    elif local.is_dir():
        rows = _numbered(load_saved_folder(path, local))
    else:
        rows = _read_file(path, local)
    if not rows:
        raise DataError(f"{path} holds no rows", fix="give it at least one row with a prompt")
    return rows


def looks_like_a_file(path: str) -> bool:
    """True for a name that no hub id can be: with a data suffix, or starting like a path."""
    suffixes = {suffix.lower() for suffix in Path(path).suffixes}
    return bool(suffixes & _READERS.keys()) or is_path(path.split(":")[0])


def _existing(path: str) -> Path | None:
    try:
        local = Path(path).expanduser()
        return local if local.exists() else None
    except (OSError, ValueError, RuntimeError):
        return None  # too long for a file name, a NUL byte, or the home of an unknown user: no such file


def _missing(path: str) -> DataError:
    guess, folder = nearest_place(path), Path(path).parent
    fix = f"did you mean {guess}?" if guess else "check dataset_path"
    if _existing(str(folder)) is None:
        return DataError(f"{path} does not exist: neither does the folder {folder}", fix=fix)
    return DataError(f"{path} does not exist", fix=fix)


def _read_file(path: str, local: Path) -> list[RawRow]:
    if not local.is_file():  # a pipe or a device could keep us waiting for ever
        raise DataError(f"{path} is not a regular file", fix="save the rows to a file first")
    try:
        with local.open("rb") as file:
            head = file.read(64)
        if not head:
            raise DataError(f"{path} is empty", fix="give it at least one row with a prompt")
        reader = _READERS.get(local.suffix.lower())
        _check_content(path, local.suffix.lower(), head)
        if reader is None:
            raise DataError(
                f"{path} has the suffix {local.suffix!r}, which says no known format",
                fix=f"use one of {', '.join(sorted(_READERS))}, or a --dataset-loader-fn",
            )
        return list(reader(path, local))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}", fix="check its permissions") from error


def _check_content(path: str, suffix: str, head: bytes) -> None:
    """A compressed or foreign file under a wrong name is named as such instead of a puzzling syntax error."""
    for magic, (content, fix) in _CONTENTS.items():
        if magic.match(head) and not (content == suffix.lstrip(".") == "parquet"):
            raise DataError(f"{path} holds {content}, not {suffix.lstrip('.') or 'rows'}", fix=fix)


def _read_jsonl(path: str, local: Path) -> Iterator[RawRow]:
    with local.open("rb") as file:
        for number, line in enumerate(file, start=1):
            place = f"line {number}"
            text = _decode(line, path, first_line=number)
            if text.strip():
                value = _parse_json(text, f"{path} {place}", fix="write one JSON object per line")
                yield RawRow(place, _as_columns(value, path, place))


def _read_json(path: str, local: Path) -> Iterator[RawRow]:
    text = _decode(local.read_bytes(), path)
    value = _parse_json(text, path, fix="one JSON object per line is JSON Lines: rename such a file to .jsonl")
    if not isinstance(value, list):
        raise DataError(
            f"{path} is {_kind(value)} at the top, not a list of rows",
            fix='write [{"prompt": ...}, ...], or one object per line in a .jsonl file',
        )
    for number, item in enumerate(value, start=1):
        yield RawRow(f"row {number}", _as_columns(item, path, f"row {number}"))


def _read_csv(path: str, local: Path) -> Iterator[RawRow]:
    text = _decode(local.read_bytes(), path)
    before = csv.field_size_limit(sys.maxsize)  # its default stops at 128 KiB, which a long problem exceeds
    try:
        records = (each for each in csv.reader(io.StringIO(text, newline=""), strict=True) if each)
        header = next(records, [])
        if len(set(header)) < len(header):
            raise DataError(f"{path} names a column twice: {', '.join(header)}", fix="rename one of them")
        for number, fields in enumerate(records, start=1):
            if len(fields) != len(header):
                raise DataError(
                    f"{path} row {number} has {len(fields)} fields, but the header has {len(header)}",
                    fix="quote fields that contain a comma or a line break",
                )
            yield RawRow(f"row {number}", dict(zip(header, fields, strict=True)))
    except csv.Error as error:
        raise DataError(f"{path} is not valid csv: {error}", fix="write it with a csv library") from error
    finally:
        csv.field_size_limit(before)


def _read_parquet(path: str, local: Path) -> Iterator[RawRow]:
    import pyarrow.parquet as parquet

    try:
        rows = parquet.ParquetFile(local).read().to_pylist()
    except Exception as error:  # a damaged file can fail anywhere inside the decoder, with many kinds of error
        raise DataError(
            f"{path} cannot be read as parquet: {first_line(error)}", fix="the file is damaged: write it again"
        ) from error
    yield from _numbered(rows)


_READERS: dict[str, Callable[[str, Path], Iterator[RawRow]]] = {
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}


def _numbered(rows: list[dict[str, Any]]) -> list[RawRow]:
    return [RawRow(f"row {number}", columns) for number, columns in enumerate(rows, start=1)]


def _decode(data: bytes, path: str, *, first_line: int = 1) -> str:
    """UTF-8 text, without byte order mark. `first_line` is the number of the data's first line in the file."""
    try:
        text = data.decode("utf-8-sig" if first_line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise DataError(f"{path} line {line} is not valid UTF-8", fix="save the file as UTF-8") from error
    if "\0" in text:
        line = first_line + text.count("\n", 0, text.index("\0"))
        raise DataError(f"{path} line {line} contains a NUL byte", fix="the file is binary or damaged: write it again")
    return text


def _parse_json(text: str, where: str, *, fix: str) -> Any:
    try:
        value = json.loads(text)
        if "\\ud" in text or "\\uD" in text:  # half of a surrogate pair is no text that a tokenizer can take
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        at = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno} column {error.colno}"
        raise DataError(f"{where} is not valid JSON: {error.msg} ({at})", fix=fix) from error
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where} contains half of a surrogate pair, which is no valid text", fix="remove the \\ud... escape"
        ) from error
    except RecursionError as error:
        raise DataError(f"{where} is nested too deeply", fix=fix) from error
    except ValueError as error:  # a number of more digits than Python converts
        raise DataError(f"{where} cannot be read: {first_line(error)}", fix="write it as a string") from error
    return value


def _as_columns(value: Any, path: str, place: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise DataError(f"{path} {place} is {_kind(value)}, not an object", fix='write {"prompt": "..."}')


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a true/false", type(None): "null"}
    return kinds.get(type(value), "a number")
