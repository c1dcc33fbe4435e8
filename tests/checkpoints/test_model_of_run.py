"""A run's folder where a model is asked for."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dapo.checkpoints.model_of_run import locate_model
from dapo.cli.main import main
from dapo.errors import CheckpointError, ConfigError, ModelError
from dapo.models.settings import ModelSettings

BY_SAMPLE = "def reward_fn(record):\n    return float(record.metadata['sample_index'])\n"


@pytest.fixture
def run(run_training: Callable[..., Path]) -> Path:
    """Two updates, each saved."""
    settings = {"prompts": ["a", "b", "c", "d"], "reward": BY_SAMPLE, "batch_size": 2}
    return run_training(**settings, save_interval=1, keep_checkpoints=2)


def located(name: object) -> tuple[str, list[str]]:
    said: list[str] = []
    return locate_model(ModelSettings(ckpt=str(name)), notify=said.append), said


def test_a_run_is_its_finished_model(run: Path) -> None:
    assert located(run) == (f"{run}/final", [f"{run} is a run: taking the finished model, {run}/final"])


def test_without_a_finished_model_it_is_the_newest_whole_checkpoint(run: Path) -> None:
    shutil.rmtree(run / "final")
    place = f"{run}/checkpoints/step_000002/model"
    assert located(run) == (place, [f"{run} is a run: taking the model after update 2, {place}"])
    (run / "checkpoints/step_000002/model/config.json").write_text("{}")
    place, said = located(run)
    assert place == f"{run}/checkpoints/step_000001/model"
    assert "is damaged" in said[0]


@pytest.mark.parametrize(
    "name", ["{}@step_1", "{}@1", "{}@step_000001", "{}/checkpoints/step_1", "{}/checkpoints/step_000001"]
)
def test_a_checkpoint_is_named_in_any_of_these_ways(run: Path, name: str) -> None:
    assert located(name.format(run))[0] == f"{run}/checkpoints/step_000001/model"


def test_what_a_run_does_not_have_is_said(run: Path) -> None:
    with pytest.raises(CheckpointError, match="has no checkpoint of step 9") as missing:
        located(f"{run}@step_9")
    assert missing.value.fix == "use one of 1, 2"
    with pytest.raises(ConfigError, match="'best' is no step"):
        located(f"{run}@best")
    shutil.rmtree(run / "final")
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(ModelError, match="is a run without a model: it has neither final/ nor a checkpoint"):
        located(run)


def test_train_sft_eval_and_export_take_a_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "a", "answer": "1", "solution": "b"}\n')
    common = ["--ckpt", f"{run}@step_1", "--dataset-path", str(data)]
    own = ["--reward-fn-path", str(tmp_path / "run_reward.py"), "--reward-workers", "1", "--max-new-tokens", "3"]
    more: dict[str, list[Any]] = {
        "train": [*common, *own, "--train-devices", "cpu", "--save-path", str(tmp_path / "t"), "--n-samples", "2"],
        "sft": [*common, "--train-devices", "cpu", "--save-path", str(tmp_path / "s")],
        "eval": [*common, *own, "--n", "2", "--device", "cpu", "--save-path", str(tmp_path / "e")],
        "export": [f"{run}/checkpoints/step_1", "--out", str(tmp_path / "o")],
    }
    for command, words in more.items():
        assert main([command, *words]) == 0
        out = capsys.readouterr().out.replace("\n", "")
        assert "the model after update 1" in out, command
    assert main(["export", f"{run}@step_1", "--step", "2", "--out", str(tmp_path / "p")]) == 2
    assert f"error: --step is 2 but {run}@step_1 names step 1\n" in capsys.readouterr().err
