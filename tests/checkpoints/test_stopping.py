"""Signals: the first one ends a run after its update, the second at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dapo.checkpoints.store import CheckpointStore
from dapo.cli.main import main
from dapo.coordination.stopping import StopRequest

Outcome = Callable[[Path], dict[str, Any]]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_run_after_the_update_in_flight_with_the_usual_code(
    tiny_runs: Any,
    outcome_of: Outcome,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    code: int,
) -> None:
    """The signal comes from the system in the middle of the third collection."""
    from dapo.coordination import run as coordination

    real = coordination.Run._collect

    def signalled(self: Any) -> Any:
        if self.updates == 2:
            os.kill(os.getpid(), number)
        return real(self)

    unbroken = outcome_of(tiny_runs.start("unbroken"))
    monkeypatch.setattr(coordination.Run, "_collect", signalled)
    settings = tiny_runs.settings | {"save_path": tiny_runs.root / "run"}
    words = [word for name, value in settings.items() for word in ("--" + name.replace("_", "-"), str(value))]
    assert main(["train", *words]) == code
    said = capfd.readouterr()
    assert "finishing this update and saving; once more ends the run at once" in said.err
    assert "saved after update 3; go on with: dapo train --resume" in said.out
    assert list(CheckpointStore(tiny_runs.root / "run/checkpoints").paths()) == [3]
    assert not (tiny_runs.root / "run/final").exists()
    monkeypatch.undo()
    assert outcome_of(tiny_runs.resume("run", keep_checkpoints=1)) == unbroken


def test_a_second_signal_ends_at_once() -> None:
    stop = StopRequest()
    with stop.listening():
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.exit_code == 130
        with pytest.raises(SystemExit) as ended:
            os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 143


def test_signals_are_the_programs_own_again_after_the_run() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with StopRequest().listening():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_run_that_was_not_asked_to_stop_exits_with_0() -> None:
    assert StopRequest().exit_code == 0


def test_a_run_stopped_before_its_first_update_starts_again(tiny_runs: Any, outcome_of: Outcome) -> None:
    held_out = {"eval_dataset_path": tiny_runs.settings["dataset_path"], "eval_n": 1, "max_steps": 2}
    unbroken = outcome_of(tiny_runs.start("unbroken", **held_out))
    tiny_runs.start("run", stop_after=0, **held_out)
    assert "stopped before the first update" in tiny_runs.said
    assert outcome_of(tiny_runs.resume("run")) == unbroken
