"""Small supervised runs, and ways to stop them anywhere."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dapo.config import load
from dapo.coordination.resume import Resume
from dapo.coordination.sft import train_supervised
from dapo.coordination.sft_settings import SftConfig
from dapo.coordination.stopping import StopRequest
from dapo.tracking.plain_display import PlainDisplay
from dapo.tracking.run_folder import RunFolder

WORDS = ("a", "be", "cat", "dogs", "eagle", "ferret")


@dataclass
class SftRuns:
    """Runs of one recipe in folders of their own."""

    root: Path
    settings: dict[str, Any]
    said: str = field(default="", init=False)
    """What the last run displayed."""

    def config(self, name: str = "run", **changes: Any) -> SftConfig:
        given = {**self.settings, "save_path": str(self.root / name), **changes}
        return load(SftConfig, None, {name: value for name, value in given.items() if value is not None})

    def start(self, name: str = "run", *, stop_after: int | None = None, **changes: Any) -> Path:
        """A new run; stopped, as by SIGTERM, in the middle of update `stop_after`."""
        return self._go(self.config(name, **changes), stop_after)

    def resume(
        self, name: str = "run", *, stop_after: int | None = None, allow_changes: bool = False, **changes: Any
    ) -> Path:
        folder = RunFolder.open(self.root / name)
        config = load(SftConfig, None, {**changes, "save_path": str(folder.path)}, saved=folder.config)
        return self._go(config, stop_after, Resume(folder, allow_changes))

    def metrics(self, name: str = "run") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.root / name / "metrics.jsonl").read_text().splitlines()]

    def outcome(self, name: str) -> dict[str, Any]:
        """All that two equal runs share: bytes of the model and the checkpoints, and metrics without times."""
        run = self.root / name
        files = {
            path.relative_to(run).as_posix(): path.read_bytes()
            for folder in ("final", "checkpoints")
            for path in sorted((run / folder).rglob("*"))
            if path.is_file()
        }
        timed = ("seconds_", "train_tokens_per_s")
        return files | {
            "metrics": [
                {key: value for key, value in line.items() if not key.startswith(timed)} for line in self.metrics(name)
            ]
        }

    def _go(self, config: SftConfig, stop_after: int | None, resume: Resume | None = None) -> Path:
        stop, stream = StopRequest(), io.StringIO()

        class Stopping(PlainDisplay):
            def step_done(self, step: int, metrics: Any) -> None:
                super().step_done(step, metrics)
                if step == stop_after:
                    stop.signal = 15

        try:
            with Stopping(stream) as display:
                return train_supervised(config, display, resume=resume, stop=stop)
        finally:
            self.said = stream.getvalue()


@pytest.fixture
def sft_runs(tmp_path: Path, tiny_folder: Callable[..., Path]) -> SftRuns:
    """6 rows whose solutions have 1 to 6 letters; 4 rows per update, 2 epochs: updates of 4, 4 and 4."""
    rows = [{"prompt": f"word {number}:", "solution": word} for number, word in enumerate(WORDS)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return SftRuns(
        tmp_path,
        {
            "ckpt": str(tiny_folder(tie_word_embeddings=True)),
            "dataset_path": str(tmp_path / "data.jsonl"),
            "train_devices": "cpu",
            "batch_size": 4,
            "mini_bs": 2,
            "epochs": 2,
            "lr": 1e-2,
            "save_interval": 0,
        },
    )
