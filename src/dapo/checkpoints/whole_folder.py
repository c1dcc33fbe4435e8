"""Folders that are there whole or not at all, whatever instant a process is killed at."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dapo.errors import ConfigError, DapoError

ASIDE = ".tmp-"
"""Begins the name of a folder that is still being written, or that is about to be removed."""


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """Gives a folder beside `target` to write into; it takes the name `target` once everything is on the disk.

    An older `target` is replaced: it has its name until the new one is complete. Raises DapoError naming the folder
    when it cannot be written; an older `target` is then untouched and nothing is left behind.
    """
    aside = _free(target.with_name(f"{ASIDE}{target.name}"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside.mkdir()
        yield aside
        _sync_tree(aside)
        _replace(target, aside)
    except DapoError:
        raise
    except Exception as error:  # the libraries that write weights and tokenizers raise errors of their own kinds
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).strip()
        raise DapoError(
            f"cannot write {target}: {reason or type(error).__name__}",
            fix="free the disk or mend the folder's permissions, then do it again (a run goes on with --resume)",
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def unused(folder: Path, name: str) -> Path:
    """The absolute path of a folder that is not there yet, or empty. name: what the person calls it.

    Raises ConfigError when it holds something.
    """
    path = folder.absolute()  # `.` has no name that a folder beside it could be called after
    try:
        taken = path.exists() and (not path.is_dir() or any(path.iterdir()))
    except OSError as error:  # no folder can have such a name, or nobody may look
        raise ConfigError(f"{name} {path} cannot be used: {error.strerror}", fix="name another folder") from error
    if taken:
        raise ConfigError(f"{name} {path} exists", fix="name a folder that does not")
    return path


def remove(folder: Path) -> str | None:
    """Delete a folder, so that a kill half way leaves nothing under its own name. Why it cannot be; None when it is."""
    doomed = _free(folder.with_name(f"{ASIDE}old-{folder.name}"))
    try:
        folder.rename(doomed)
        shutil.rmtree(doomed)
    except FileNotFoundError:  # somebody else was faster
        return None
    except OSError as error:
        return error.strerror or str(error)
    return None


def remove_leftovers(parent: Path) -> None:
    """Delete what killed processes left half written or half removed in `parent`."""
    if parent.is_dir():
        for leftover in parent.glob(f"{ASIDE}*"):
            shutil.rmtree(leftover, ignore_errors=True)


def sync_file(path: Path) -> None:
    """Wait until the disk has the file's content, or a folder's names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_tree(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        sync_file(path)
    sync_file(folder)


def _replace(target: Path, aside: Path) -> None:
    """No system call exchanges two folders everywhere, so for an instant an older target has only its other name."""
    old = _free(target.with_name(f"{ASIDE}old-{target.name}"))
    if target.exists():
        target.rename(old)
    aside.rename(target)
    sync_file(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _free(path: Path) -> Path:
    """`path` once its leftover is gone, or where that cannot be deleted the same with a number: no leftover keeps
    anything new from being written."""
    for number in itertools.count(1):
        free = path if number == 1 else path.with_name(f"{path.name}-{number}")
        shutil.rmtree(free, ignore_errors=True)
        if not os.path.lexists(free):
            return free
    raise AssertionError("there is always a next number")
