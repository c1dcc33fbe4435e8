"""What a run leaves behind: checkpoints on its way, the model at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dapo.checkpoints.run_state import RunState
from dapo.checkpoints.store import CheckpointStore
from dapo.checkpoints.whole_folder import sync_file, written_whole
from dapo.coordination.length import go_on
from dapo.coordination.settings import RunSettings
from dapo.models.language_model import LanguageModel
from dapo.models.loading import save_model
from dapo.tracking.run_folder import RunFolder
from dapo.training.update import Trainer


@dataclass
class Saving:
    """Saves one run."""

    settings: RunSettings
    folder: RunFolder
    checkpoints: CheckpointStore
    model: LanguageModel
    trainer: Trainer
    warn: Callable[[str], None]
    saved: RunState | None
    """The state that the newest checkpoint holds."""
    _warned: bool = field(default=False, init=False)
    """Whether it was said that old checkpoints stay."""

    def checkpoint(self, state: RunState | None) -> None:
        """Save the run as it was in `state`, unless that is None or saved already; then forget old ones."""
        if state is None or state is self.saved:
            return
        for log in (self.folder.metrics, self.folder.rollouts):
            if log.exists():
                sync_file(log)  # a checkpoint must not outlive, on the disk, the lines that lead to it
        self.checkpoints.save(state, self.trainer.save)
        self.saved = state
        self._forget_old_ones(state.updates)

    def export(self) -> None:
        """Write the model as it is now to `final/`."""
        with written_whole(self.folder.final) as aside:
            save_model(self.model, aside)

    def _forget_old_ones(self, newest: int) -> None:
        """Tried after each save and said once: a run does not end because its past cannot be tidied."""
        run = self.settings
        try:
            left = self.checkpoints.forget(run.keep_checkpoints, newest=newest, keep_best=run.keep_best)
        except OSError as error:
            left = [
                f"{self.checkpoints.folder} cannot be looked through for old checkpoints: {error.strerror or error}"
            ]
        if left and not self._warned:
            self.warn(f"{left[0]}; the run goes on, and old checkpoints may take up the disk")
            self._warned = True

    def stopped(self, state: RunState | None, command: str) -> str:
        """Save after a request to stop; returns what a person is told. command: of `dapo`, that goes on."""
        self.checkpoint(state)
        saved = f"saved after update {state.updates}" if state else "stopped before the first update"
        return f"{saved}; go on with: {go_on(command, self.folder.path)}"
