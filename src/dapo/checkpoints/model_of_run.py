"""The model that a run's folder stands for: `RUN`, `RUN@step_40`, `RUN/checkpoints/step_40`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from dapo.checkpoints.store import CheckpointStore
from dapo.errors import ConfigError, ModelError
from dapo.models.loading import locate
from dapo.models.settings import ModelSettings

_STEP = re.compile(r"(?:step_)?0*(\d{1,12})")


@dataclass(frozen=True)
class NamedRun:
    """A run's folder as a person named it."""

    folder: Path
    step: int | None
    """The update whose checkpoint is meant; None: not said."""


def named_run(name: str) -> NamedRun | None:
    """The run that a name stands for; None when it stands for something else. Raises ConfigError for a bad step."""
    path = Path(os.path.expanduser(name))
    if _is_run(path):
        return NamedRun(path, None)
    before, at, behind = name.rpartition("@")
    if at and _is_run(Path(os.path.expanduser(before))):
        step = _STEP.fullmatch(behind)
        if step is None:
            raise ConfigError(f"{name} names no checkpoint: {behind!r} is no step", fix=f"write {before}@step_40")
        return NamedRun(Path(os.path.expanduser(before)), int(step[1]))
    step = _STEP.fullmatch(path.name)
    if step and path.parent.name == "checkpoints" and _is_run(path.parent.parent):
        return NamedRun(path.parent.parent, int(step[1]))
    return None


def locate_model(settings: ModelSettings, *, notify: Callable[[str], None] = lambda _: None) -> str:
    """The folder or hub id to load from, as `locate` has it, where `ckpt` may be a run as well: then its finished
    model, else that of its newest whole checkpoint, or of the one that is named.

    notify: told which one it is. Raises CheckpointError when a checkpoint is missing or damaged.
    """
    run = named_run(str(settings.ckpt))
    if run is None:
        return locate(settings, notify=notify)
    store = CheckpointStore(run.folder / "checkpoints")
    if run.step is None and (run.folder / "final" / "config.json").is_file():
        model, which = run.folder / "final", "the finished model"
    else:
        checkpoint = store.newest(notify) if run.step is None else store.at(run.step)
        if checkpoint is None:
            raise ModelError(
                f"ckpt {settings.ckpt} is a run without a model: it has neither final/ nor a checkpoint",
                fix="train on until one is saved, or name another model",
            )
        model, which = checkpoint.model, f"the model after update {checkpoint.step}"
    notify(f"{settings.ckpt} is a run: taking {which}, {model}")
    return locate(replace(settings, ckpt=str(model)), notify=notify)


def _is_run(path: Path) -> bool:
    """Whether it is a run's folder, and not that of a model, which may hold anything beside its config.json."""
    return os.path.isfile(path / "config.toml") and not os.path.isfile(path / "config.json")
