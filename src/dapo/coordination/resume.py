"""Going on with a run: which folder, which checkpoint, and whether it is still the same run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dapo.checkpoints.fingerprint import Fingerprint, changed_settings
from dapo.checkpoints.run_state import RunState
from dapo.checkpoints.store import Checkpoint, CheckpointStore
from dapo.checkpoints.whole_folder import remove_leftovers
from dapo.errors import CheckpointError
from dapo.tracking.metrics_log import MetricsLog
from dapo.tracking.rollout_log import RolloutLog
from dapo.tracking.run_folder import RunFolder


@dataclass(frozen=True)
class Resume:
    """The wish to go on with a run."""

    folder: RunFolder
    allow_changes: bool = False
    """Go on although data, reward or settings would alter the run."""


@dataclass(frozen=True)
class ResumePoint:
    """The checkpoint to go on from."""

    checkpoint: Checkpoint
    state: RunState


def newest_run(save_path: Path | None, *, supervised: bool = False) -> RunFolder | None:
    """What `--resume auto` means: the run in `save_path`, or else the one under `runs/` that was started last.

    supervised: look under `runs/` for runs of `dapo sft`, not for those of `dapo train`.
    """
    if save_path is not None:
        folder = RunFolder(save_path)
        return folder if os.path.isfile(folder.config) else None
    # Each start writes config.toml anew, a resumed one too.
    configs = [config for config in Path("runs").glob("*/config.toml") if is_supervised(config) == supervised]
    found = [RunFolder(config.parent) for config in configs]
    return max(found, key=lambda folder: (folder.config.stat().st_mtime_ns, folder.path.name), default=None)


def is_supervised(config: Path) -> bool:
    """Whether a run's `config.toml` was written by `dapo sft`."""
    return "\n[sft]\n" in "\n" + config.read_text(encoding="utf-8", errors="replace")


def find_resume_point(
    resume: Resume, settings: Mapping[str, Any], notice: Callable[[str], None], warning: Callable[[str], None]
) -> ResumePoint | None:
    """The newest whole checkpoint, or None, said aloud, when the run has none yet. Settings are compared here.

    Raises CheckpointError when all are damaged or when a setting would alter the run.
    """
    checkpoint = CheckpointStore(resume.folder.checkpoints).newest(warning)
    if checkpoint is None:
        notice(f"{resume.folder.path} has no checkpoint yet: starting at update 0")
        return None
    state = checkpoint.state()
    saved = state.fingerprint.settings
    if "ckpt" in saved and saved["ckpt"] != settings["ckpt"]:
        raise CheckpointError(
            f"ckpt is {settings['ckpt']} now but was {saved['ckpt']}: the weights come from the checkpoint",
            fix="leave ckpt out, or start a new run from the other model",
        )
    _refuse(changed_settings(saved, settings), resume, warning)
    if state.threads is not None and state.threads != torch.get_num_threads():
        warning(
            f"the run computed with {state.threads} threads and goes on with {torch.get_num_threads()}: sums are "
            f"rounded otherwise and the unbroken run is not repeated bit for bit; set OMP_NUM_THREADS={state.threads}"
        )
    notice(f"going on from {checkpoint.path}, after update {state.updates}")
    return ResumePoint(checkpoint, state)


def compare_contents(point: ResumePoint, now: Fingerprint, resume: Resume, warning: Callable[[str], None]) -> None:
    """Settings were compared before the data were read; data and reward follow. Raises CheckpointError."""
    known = changed_settings(point.state.fingerprint.settings, now.settings)
    changes = [change for change in point.state.fingerprint.changes(now) if change not in known]
    _refuse(changes, resume, warning)


def roll_back(folder: RunFolder, updates: int) -> list[str]:
    """Forget whatever the run did after `updates`; below 0, everything. Returns what could not be deleted."""
    left = CheckpointStore(folder.checkpoints).roll_back(updates)
    remove_leftovers(folder.path)
    MetricsLog(folder.metrics).truncate_after(updates)
    RolloutLog(folder.rollouts).truncate_after(updates)
    return left


def _refuse(changes: list[str], resume: Resume, warning: Callable[[str], None]) -> None:
    if not changes:
        return
    if not resume.allow_changes:
        raise CheckpointError(
            f"{resume.folder.path} would go on as another run: {'; '.join(changes)}",
            fix="undo that, start a new run, or accept it with --allow-changes",
        )
    for change in changes:
        warning(f"the run is altered from here on: {change}")
