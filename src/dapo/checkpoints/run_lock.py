"""One process per run folder."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dapo.errors import ConfigError

LOCK = ".lock"


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Hold the run folder's lock. The system lets go of it when the process ends, however it ends.

    Raises ConfigError when another process has it, or when the folder cannot be written.
    """
    path = folder / LOCK
    try:
        file = path.open("a")
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror or error}", fix="mend the folder's permissions, or free the disk"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"the run folder {folder} is in use by another process",
                fix="wait until that run ends or stop it, or choose another --save-path",
            ) from error
        yield
