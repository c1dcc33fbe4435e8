"""A small real run that disagrees, keeps surplus groups and crosses an epoch, and ways to stop it anywhere."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dapo.config import load_config
from dapo.coordination.resume import Resume
from dapo.coordination.run import train
from dapo.coordination.stopping import StopRequest
from dapo.tracking.plain_display import PlainDisplay
from dapo.tracking.run_folder import RunFolder

REWARD = """
def reward_fn(record):
    return {"score": float(sum(map(ord, record.completion)) % 2), "acc": float(len(record.completion) % 2)}
"""
TIMINGS = ("seconds_", "rollout_tokens_per_s", "train_tokens_per_s")


Act = Callable[[int], None]


def nothing(step: int) -> None:
    """What most tests do when an update is done."""


class StoppingDisplay(PlainDisplay):
    """Plain lines, and a stop asked for (or an error raised) as soon as an update is done."""

    def __init__(self, stream: io.StringIO, act: Act) -> None:
        super().__init__(stream)
        self._act = act

    def step_done(self, step: int, metrics: Any) -> None:
        super().step_done(step, metrics)
        self._act(step)


@dataclass
class TinyRuns:
    """Runs of one recipe in folders of their own."""

    root: Path
    settings: dict[str, Any]
    said: str = field(default="", init=False)
    """What the last run displayed."""

    def start(self, name: str, *, stop_after: int | None = None, when_done: Act = nothing, **changes: Any) -> Path:
        """A new run; stopped, as by SIGTERM, in the middle of update `stop_after`. when_done: called with each step."""
        config = load_config(None, {**self.settings, "save_path": str(self.root / name), **changes})
        return self._go(config, stop_after, when_done)

    def resume(
        self,
        name: str,
        *,
        stop_after: int | None = None,
        when_done: Act = nothing,
        allow_changes: bool = False,
        **changes: Any,
    ) -> Path:
        folder = RunFolder.open(self.root / name)
        config = load_config(None, {**changes, "save_path": str(folder.path)}, saved=folder.config)
        return self._go(config, stop_after, when_done, Resume(folder, allow_changes))

    def _go(self, config: Any, stop_after: int | None, when_done: Act, resume: Resume | None = None) -> Path:
        stop, stream = StopRequest(), io.StringIO()

        def act(step: int) -> None:
            when_done(step)
            if step == stop_after:
                stop.signal = 15

        try:
            with StoppingDisplay(stream, act) as display:
                return train(config, display, resume=resume, stop=stop)
        finally:
            self.said = stream.getvalue()


@pytest.fixture
def tiny_runs(tmp_path: Path, tiny_folder: Callable[..., Path]) -> TinyRuns:
    """12 prompts, 4 groups per update, surplus kept: an epoch ends within a few updates."""
    rows = [{"prompt": f"{number} plus {number} is", "answer": number} for number in range(12)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "reward.py").write_text(REWARD)
    return TinyRuns(
        tmp_path,
        {
            "ckpt": str(tiny_folder(tie_word_embeddings=True)),
            "dataset_path": str(tmp_path / "data.jsonl"),
            "reward_fn_path": str(tmp_path / "reward.py"),
            "train_devices": "cpu",
            "reward_workers": 1,
            "n_samples": 2,
            "max_new_tokens": 5,
            "batch_size": 2,
            "dapo_gen_batch_size": 5,
            "max_staleness": 2,
            "mini_bs": 2,
            "lr": 1e-2,
            "seed": 0,
            "epochs": 4,
            "max_steps": 6,
            "save_interval": 0,
        },
    )


def outcome(run: Path) -> dict[str, Any]:
    """All that two equal runs share: bytes of final files, checkpoints and rollouts, and metrics without times."""
    files = {
        path.relative_to(run).as_posix(): path.read_bytes()
        for folder in ("final", "checkpoints")
        for path in sorted((run / folder).rglob("*"))
        if path.is_file()
    }
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    metrics = [{name: value for name, value in line.items() if not name.startswith(TIMINGS)} for line in lines]
    return {"metrics": metrics, "rollouts": (run / "rollouts.jsonl").read_bytes(), **files}


@pytest.fixture(scope="session")
def outcome_of() -> Callable[[Path], dict[str, Any]]:
    return outcome
