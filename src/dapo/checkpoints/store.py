"""The checkpoints of a run: `checkpoints/step_000012/`, each whole or not there.

    model/                   what was trained, and
    optimizer.safetensors    what the optimizer knows: models/saved_state.py
    state.json               RunState
    manifest.json            size and SHA-256 of all the others, written last

Nothing in them is a pickle, a time or a machine's name: two runs of the same settings write the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from dapo.checkpoints.manifest import damage, write_manifest
from dapo.checkpoints.run_state import RunState
from dapo.checkpoints.whole_folder import remove, remove_leftovers, written_whole
from dapo.errors import CheckpointError
from dapo.models.saved_state import MODEL, read_optimizer

_NAME = re.compile(r"step_(\d+)")


@dataclass(frozen=True)
class Checkpoint:
    """One that was found whole."""

    step: int
    path: Path

    @property
    def model(self) -> Path:
        return self.path / MODEL

    def state(self) -> RunState:
        try:
            return RunState.from_json((self.path / "state.json").read_bytes())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(
                f"{self.path / 'state.json'} was written by another version of dapo",
                fix="go on with that version, or `dapo export` the weights and start a new run from them",
            ) from error

    def optimizer(self) -> dict[str, Tensor]:
        return read_optimizer(self.path)


class CheckpointStore:
    """The folder `checkpoints` of a run. Only the process that holds the run's lock may change it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def paths(self) -> dict[int, Path]:
        """Step -> folder, in the order of the steps. Only names are looked at; anything foreign is passed over."""
        if not self.folder.is_dir():
            return {}
        named = [(_NAME.fullmatch(path.name), path) for path in self.folder.iterdir() if path.is_dir()]
        return dict(sorted((int(match[1]), path) for match, path in named if match))

    def save(self, state: RunState, write_trained: Callable[[Path], None]) -> Checkpoint:
        """Write the checkpoint of `state.updates`. Raises DapoError when it cannot be; the older ones are intact.

        write_trained: puts what was trained into the folder it is given, as saved_state.py says.
        """
        path = self.folder / f"step_{state.updates:06d}"
        with written_whole(path) as aside:
            (aside / "state.json").write_text(state.to_json(), encoding="utf-8")
            write_trained(aside)
            write_manifest(aside)
        return Checkpoint(state.updates, path)

    def newest(self, warn: Callable[[str], None]) -> Checkpoint | None:
        """The newest whole checkpoint; None when none was ever written.

        warn: told of each damaged one that is passed over. Raises CheckpointError when all are damaged.
        """
        found = list(reversed(self.paths().items()))
        for step, path in found:
            reason = damage(path)
            if reason is None:
                return Checkpoint(step, path)
            warn(f"checkpoint {path} is damaged ({reason}): trying the one before")
        if found:
            raise CheckpointError(
                f"every checkpoint in {self.folder} is damaged", fix="restore one from a copy, or start a new run"
            )
        return None

    def at(self, step: int) -> Checkpoint:
        """The checkpoint of a step. Raises CheckpointError, naming those there are, when it is missing or damaged."""
        paths = self.paths()
        if step not in paths:
            raise CheckpointError(f"{self.folder} has no checkpoint of step {step}", fix=_choice(paths))
        reason = damage(paths[step])
        if reason is not None:
            raise CheckpointError(f"checkpoint {paths[step]} is damaged: {reason}", fix=_choice(paths.keys() - {step}))
        return Checkpoint(step, paths[step])

    def best(self) -> tuple[int, float] | None:
        """Step and held-out accuracy of the best checkpoint that was measured, of equal ones the newest."""
        measured = [(step, _accuracy(Checkpoint(step, path))) for step, path in self.paths().items()]
        known = [(step, accuracy) for step, accuracy in measured if accuracy is not None]
        return max(known, key=lambda entry: (entry[1], entry[0])) if known else None

    def forget(self, keep: int, *, newest: int, keep_best: bool) -> list[str]:
        """Delete all but the newest `keep`, and the best where that is wanted. Returns what could not be deleted.

        newest: the step just saved; a later one is a damaged one that could not be deleted before, and does not count.
        """
        paths = {step: path for step, path in self.paths().items() if step <= newest}
        kept = set(list(paths)[-keep:])
        best = self.best() if keep_best else None
        if best is not None:
            kept.add(best[0])
        return _removed(path for step, path in paths.items() if step not in kept)

    def roll_back(self, step: int) -> list[str]:
        """Delete what lies after `step` (it is damaged, or belongs to a run that is done over) and all leftovers.
        Returns what could not be deleted."""
        left = _removed(path for later, path in self.paths().items() if later > step)
        remove_leftovers(self.folder)
        return left


def _removed(paths: Iterable[Path]) -> list[str]:
    """Tries to delete each; a sentence for each that is still there."""
    outcomes = [(path, remove(path)) for path in paths]
    return [f"checkpoint {path} cannot be deleted: {reason}" for path, reason in outcomes if reason is not None]


def _accuracy(checkpoint: Checkpoint) -> float | None:
    """None where it was not measured, or where an old checkpoint has been damaged meanwhile."""
    try:
        return checkpoint.state().heldout_accuracy
    except (OSError, CheckpointError):
        return None


def _choice(steps: Iterable[int]) -> str:
    known = ", ".join(str(step) for step in sorted(steps))
    return f"use one of {known}" if known else "there is none: train on until one is saved"
