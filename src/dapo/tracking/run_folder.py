"""The folder of one run. Whoever wants to know anything about a run finds it here, under the same names."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dapo.errors import ConfigError
from dapo.places import nearest_place

_ANOTHER = "choose another --save-path, or go on with that run: --resume {path}"
_SAME_SECOND = 1000
"""Runs of one algorithm that may start within one second under default names."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where the parts of a run lie. Having one promises that the folder exists and holds `config.toml`."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved settings. Its presence is what makes a folder a run."""
        return self.path / "config.toml"

    @property
    def started(self) -> Path:
        """When the run was started: the date that chat templates print, on the days of its resumes too."""
        return self.path / "started.txt"

    @property
    def metrics(self) -> Path:
        """One line per update."""
        return self.path / "metrics.jsonl"

    @property
    def rollouts(self) -> Path:
        """One line per generated group."""
        return self.path / "rollouts.jsonl"

    @property
    def checkpoints(self) -> Path:
        """A folder per saved step."""
        return self.path / "checkpoints"

    @property
    def final(self) -> Path:
        """The trained model in Hugging Face format."""
        return self.path / "final"

    @classmethod
    def create(
        cls, save_path: Path | None, *, algo: str, config_toml: str, started: datetime | None = None
    ) -> RunFolder:
        """Makes the folder with its `config.toml`; without a `save_path`, `runs/<date-time>-<algo>`.

        started: written down for `start_time`; now if it is None.
        Raises ConfigError when it holds a run already or cannot be written; then nothing is left behind.
        """
        check_save_path(save_path)
        folder = cls(_make_default(algo) if save_path is None else _make(save_path))
        try:
            _write_whole(folder.started, f"{started or datetime.now():%Y-%m-%dT%H:%M:%S}\n")
            _write_whole(folder.config, config_toml)
        except ConfigError:
            with suppress(OSError):  # the folder is only removed if nothing else is in it
                folder.started.unlink(missing_ok=True)
                folder.path.rmdir()
            raise
        return folder

    def start_time(self) -> datetime | None:
        """When the run was started; None where that was not written down. Raises ConfigError for a damaged file."""
        try:
            return datetime.fromisoformat(self.started.read_text(encoding="utf-8").strip())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self.started} cannot be read: {error}",
                fix="write the date there at which the run started, such as 2025-01-31T12:00:00",
            ) from error

    def rewrite_config(self, config_toml: str) -> None:
        """Replaces the resolved settings: a run that goes on may do so with other ones. Raises ConfigError."""
        _write_whole(self.config, config_toml)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The folder of a run that was started before. Raises ConfigError when `path` is none."""
        folder = cls(path)
        if not os.path.exists(path):
            guess = nearest_place(str(path))
            raise ConfigError(
                f"{path} is not a run folder: no such folder",
                fix=f"did you mean {guess}?" if guess else "give the folder that was named when the run started",
            )
        if not os.path.isfile(folder.config):  # unlike Path's own, False for a name that no folder can have
            raise ConfigError(
                f"{path} is not a run folder: it has no {folder.config.name}",
                fix="give the folder that was named when the run started",
            )
        return folder


def check_save_path(save_path: Path | None) -> None:
    """Refuses, without touching the disk, a folder that `RunFolder.create` would refuse: for the time before the
    model is loaded. Raises ConfigError."""
    path = Path("runs") if save_path is None else save_path
    reason = _obstacle(path)
    if reason is not None:
        raise _cannot_create(path, reason)
    if save_path is not None and _holds_run(save_path):
        raise ConfigError(f"--save-path {path} already holds a run", fix=_ANOTHER.format(path=path))


def _obstacle(path: Path) -> str | None:
    """Why no folder can be made at `path`, as far as one can see without trying."""
    parent = path.absolute()
    try:
        while not _exists(parent):
            parent = parent.parent
        if not parent.is_dir():
            return f"{parent} is not a folder"
        return None if os.access(parent, os.W_OK | os.X_OK) else f"{parent} is not writable"
    except (OSError, ValueError) as error:  # a name that is too long, or holds a NUL
        return str(error)


def _holds_run(path: Path) -> bool:
    folder = RunFolder(path)
    parts = (folder.config, folder.metrics, folder.rollouts, folder.checkpoints, folder.final)
    return any(part.exists() for part in parts)


def _exists(path: Path) -> bool:
    """Unlike `Path.exists`, does not take a name that no folder can have for one that is merely absent."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _make(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_create(path, error.strerror or str(error)) from error
    return path


def _make_default(algo: str) -> Path:
    """A new folder even when a script starts several runs within the same second."""
    name = f"{datetime.now():%Y-%m-%d-%H%M%S}-{algo}"
    for number in range(1, _SAME_SECOND):
        path = Path("runs") / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise _cannot_create(path, error.strerror or str(error)) from error
        return path
    raise _cannot_create(Path("runs") / name, f"{_SAME_SECOND - 1} runs of this name exist")


def _write_whole(path: Path, text: str) -> None:
    """A kill leaves the whole file or none, and so does a failed write."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except (OSError, UnicodeError) as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise _cannot_create(path.parent, str(error)) from error


def _cannot_create(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"the run folder {path} cannot be created: {reason}", fix="choose another --save-path that can be written"
    )
