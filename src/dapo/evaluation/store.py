"""The folder of an evaluation: what it is, the answers that are finished, and the results."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from dapo.errors import ConfigError, DapoError, DataError
from dapo.evaluation.identity import Identity
from dapo.tracking.json_lines import JsonLines, read

_ANOTHER = "choose another --save-path"
_STARTED = "started"
"""Beside the identity, but no part of it: the date that chat templates print, until the evaluation is finished."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is counted of one answer."""

    length: int
    """Tokens, end token included."""
    truncated: bool
    reward: float
    score: float
    """`acc` if the reward returns it, else the reward: what `right_from` is compared with."""
    vote: str | None
    """What the answer states; see votes.py."""


_COUNTED = tuple(field.name for field in fields(Answer))


@dataclass(frozen=True, slots=True)
class AnsweredRow:
    """One row of the data with all its answers."""

    draw: int
    """Number of the row among those that are asked, from 0."""
    row: int
    """Number of the row in the data as read, from 0."""
    prompt: str
    """What the model read."""
    question: str
    """What a person would call the problem: the last chat message that is not the assistant's, or the whole prompt."""
    reference: Any
    """The row's reference answer."""
    answers: tuple[Answer, ...]
    unjudged: int
    """Answers that scored 0 since the reward failed on them, counted since the row before was written."""


class EvalStore:
    """`settings.json`, `answers.jsonl` and `results.json` in one folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results = path / "results.json"
        self._settings = path / "settings.json"
        self._answers = path / "answers.jsonl"

    def check(self, identity: Identity) -> None:
        """Raise ConfigError when the folder holds something else than this evaluation. Changes nothing."""
        try:
            if not self._settings.exists():
                if self.path.exists() and any(entry.name != ".lock" for entry in self.path.iterdir()):
                    raise ConfigError(f"--save-path {self.path} holds something that is no evaluation", fix=_ANOTHER)
                return
            saved = Identity(**{name: value for name, value in self._read().items() if name != _STARTED})
        except (OSError, ValueError, TypeError, AttributeError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{self._settings} cannot be read: {error}", fix=_ANOTHER) from error
        differences = identity.differences(saved)
        if differences:
            raise ConfigError(
                f"{self.path} holds another evaluation: {'; '.join(differences)}", fix=f"{_ANOTHER}, or remove that one"
            )

    def start_time(self) -> datetime | None:
        """When the evaluation was started; None where that was not written down. Call `check` before."""
        try:
            return datetime.fromisoformat(self._read()[_STARTED])
        except (FileNotFoundError, KeyError):
            return None
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{self._settings} has an unreadable {_STARTED!r}: {error}", fix=_ANOTHER) from error

    def begin(self, identity: Identity, started: datetime) -> None:
        """Write down which evaluation this is, and when it was started, unless that is there already."""
        if not self._settings.exists():
            self._write_whole(self._settings, {**asdict(identity), _STARTED: started.isoformat(timespec="seconds")})

    def _read(self) -> dict[str, Any]:
        return json.loads(self._settings.read_text(encoding="utf-8"))

    def finished(self) -> dict[int, AnsweredRow]:
        """The rows that are done, by number of draw. Raises DataError for a damaged file."""
        if not self._answers.exists():
            return {}
        rows = {}
        for line in read(self._answers):
            try:
                answers = tuple(Answer(**{name: answer[name] for name in _COUNTED}) for answer in line["answers"])
                others = {name: line[name] for name in ("row", "prompt", "question", "reference", "unjudged")}
            except (KeyError, TypeError) as error:
                raise DataError(
                    f"{self._answers} holds a line that is no answered row",
                    fix=f"remove the line of step {line['step']}",
                ) from error
            rows[line["step"]] = AnsweredRow(draw=line["step"], answers=answers, **others)
        return rows

    def append(self, row: AnsweredRow, texts: Sequence[str]) -> None:
        """Keep a finished row and what its answers say. Raises DapoError when it cannot be written."""
        record = asdict(row)
        record["answers"] = [{"text": text, **answer} for text, answer in zip(texts, record["answers"], strict=True)]
        try:
            JsonLines(self._answers).append(record.pop("draw"), record)  # `step` of a line is its draw here
        except DapoError as error:
            raise self._cannot_write(error.problem) from error

    def write_results(self, results: Mapping[str, Any]) -> None:
        self._write_whole(self.results, results)

    def _write_whole(self, path: Path, content: Mapping[str, Any]) -> None:
        """A kill leaves the whole file or the one before."""
        partial = path.with_name(f".{path.name}.partial")
        try:
            with partial.open("w", encoding="utf-8", errors="backslashreplace") as file:
                json.dump(content, file, indent=1, ensure_ascii=False, default=str)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except OSError as error:
            raise self._cannot_write(f"cannot write {path}: {error.strerror or error}") from error

    def _cannot_write(self, problem: str) -> DapoError:
        return DapoError(problem, fix="free the disk or mend the folder's permissions, then run the same command again")


def default_path(ckpt: str, data: Sequence[str | None], identity: Identity) -> Path:
    """`evals/<model>-<data>-<digest>`: the same command finds its own folder again."""
    words = [*Path(ckpt).parts[-2:], next((Path(name).stem for name in data if name), "")]
    name = "-".join("".join(char if char.isalnum() or char in "._+" else "-" for char in word) for word in words)
    return Path("evals") / f"{name.strip('.-')[-80:].strip('.-')}-{identity.digest}"
