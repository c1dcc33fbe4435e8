"""Tidying is tried and never essential: what cannot be deleted is said once, and the run goes on.

A superuser may delete everything, so the system's own calls are made to refuse.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dapo.checkpoints.store import CheckpointStore
from dapo.checkpoints.whole_folder import remove, written_whole


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes a system call fail for every path in which one of the names occurs."""

    def make(call: str, *names: str) -> None:
        owner: Any = shutil if call == "rmtree" else os
        real = getattr(owner, call)

        def refusing(path: Any, *more: Any, **options: Any) -> Any:
            if not any(name in str(path) for name in names):
                return real(path, *more, **options)
            if options.get("ignore_errors"):
                return None
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

        monkeypatch.setattr(owner, call, refusing)

    return make


def steps(run: Path) -> list[int]:
    return list(CheckpointStore(run / "checkpoints").paths())


SAVING = {"save_interval": 1, "keep_checkpoints": 1, "max_steps": 4}


def test_old_checkpoints_that_cannot_be_renamed_stay_with_one_warning(
    tiny_runs: Any, outcome_of: Any, refuse: Any
) -> None:
    unbroken = tiny_runs.start("unbroken", **SAVING)
    refuse("rename", "run/checkpoints/step_000001", "run/checkpoints/step_000002")
    run = tiny_runs.start("run", **SAVING)
    assert steps(run) == [1, 2, 4]
    assert tiny_runs.said.count("cannot be deleted: Permission denied; the run goes on") == 1
    for step in (1, 2):
        shutil.rmtree(run / f"checkpoints/step_00000{step}")
    assert outcome_of(run) == outcome_of(unbroken)


def test_old_checkpoints_that_cannot_be_deleted_are_out_of_the_way_with_one_warning(
    tiny_runs: Any, refuse: Any
) -> None:
    refuse("rmtree", ".tmp-old-step_00000")
    run = tiny_runs.start("run", **SAVING)
    assert steps(run) == [4]
    assert tiny_runs.said.count("cannot be deleted: Permission denied") == 1
    assert (run / "final/model.safetensors").exists()


def test_a_folder_of_checkpoints_that_cannot_be_looked_through_ends_no_run(
    tiny_runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(CheckpointStore, "forget", unreadable)
    tiny_runs.start("run", **SAVING)
    assert tiny_runs.said.count("cannot be looked through for old checkpoints: Permission denied") == 1


def test_a_resume_goes_on_beside_a_damaged_checkpoint_that_cannot_be_deleted(tiny_runs: Any, refuse: Any) -> None:
    """The damaged one is of a later step; it must not push the good ones out."""
    run = tiny_runs.start("run", **(SAVING | {"keep_checkpoints": 2}), stop_after=2)
    (run / "checkpoints/step_000009").mkdir()
    refuse("rename", "step_000009")
    tiny_runs.resume("run", max_steps=4)
    assert "step_000009 cannot be deleted: Permission denied" in tiny_runs.said
    assert steps(run) == [3, 4, 9]


def test_leftovers_that_cannot_be_deleted_keep_nothing_from_being_written(tmp_path: Path, refuse: Any) -> None:
    for name in (".tmp-final", ".tmp-old-final", "final"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old").write_text("old")
    refuse("rmtree", "/.tmp-final", "/.tmp-old-final")
    with written_whole(tmp_path / "final") as aside:
        (aside / "new").write_text("whole")
    assert [path.name for path in (tmp_path / "final").iterdir()] == ["new"]
    assert remove(tmp_path / "final") == "Permission denied"
    assert not (tmp_path / "final").exists()


def test_what_is_gone_already_is_no_trouble(tmp_path: Path) -> None:
    assert remove(tmp_path / "never there") is None
