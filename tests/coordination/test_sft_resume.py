"""A supervised run that is stopped and resumed is the unbroken run, byte for byte."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from dapo.cli.main import main
from dapo.coordination.resume import newest_run
from dapo.errors import CheckpointError
from dapo.tracking.run_folder import RunFolder

LONGER = {"epochs": 4, "batch_size": 5, "mini_bs": 2}
"""24 rows in fives: 5 updates, over three borders between epochs, the last of 4 rows."""


@pytest.mark.parametrize("stop_after", [1, 3, 4])
def test_a_stopped_and_resumed_run_equals_the_unbroken_one(sft_runs: Any, stop_after: int) -> None:
    sft_runs.start("unbroken", **LONGER)
    unbroken = sft_runs.outcome("unbroken")
    run = sft_runs.start("broken", stop_after=stop_after, **LONGER)
    assert f"saved after update {stop_after}; go on with: dapo sft --resume {run}" in sft_runs.said
    assert not (run / "final").exists()
    torch.manual_seed(99)
    sft_runs.resume("broken", keep_checkpoints=1)
    assert f"step_{stop_after:06d}, after update {stop_after}" in sft_runs.said
    assert sft_runs.outcome("broken") == unbroken


def test_a_bfloat16_run_goes_on_from_its_float32_masters(sft_runs: Any) -> None:
    sft_runs.start("unbroken", dtype="bfloat16")
    sft_runs.start("broken", dtype="bfloat16", stop_after=2)
    sft_runs.resume("broken", keep_checkpoints=1)
    assert sft_runs.outcome("broken") == sft_runs.outcome("unbroken")


def test_what_came_after_the_checkpoint_is_done_over(sft_runs: Any) -> None:
    """Saved after 2, then killed in update 4: the lines of update 3 and a half one of 4 are forgotten."""
    sft_runs.start("unbroken", save_interval=2, **LONGER)
    run = sft_runs.start("killed", save_interval=2, stop_after=3, **LONGER)
    for path in sorted((run / "checkpoints/step_000003").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (run / "checkpoints/step_000003").rmdir()
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"step": 4, "lo')
    sft_runs.resume("killed")
    assert sft_runs.outcome("killed") == sft_runs.outcome("unbroken")


def test_a_run_without_a_checkpoint_starts_again_and_says_so(sft_runs: Any) -> None:
    sft_runs.start("unbroken")
    run = sft_runs.start("killed", stop_after=1)
    (run / "checkpoints/step_000001").rename(run / "elsewhere")
    sft_runs.resume("killed")
    assert "has no checkpoint yet: starting at update 0" in sft_runs.said
    assert sft_runs.outcome("killed") == sft_runs.outcome("unbroken")


def test_a_finished_run_goes_on_for_more_epochs(sft_runs: Any) -> None:
    sft_runs.start("unbroken", epochs=4)
    sft_runs.start("short", epochs=2)
    sft_runs.resume("short", epochs=4, keep_checkpoints=1)
    assert sft_runs.outcome("short") == sft_runs.outcome("unbroken")


def test_a_longer_run_takes_all_rows_although_an_update_was_small(sft_runs: Any) -> None:
    """6 rows in fours: 4 and 2. Another epoch: 4 and 2 again, 4 updates and not ceil(12 / 4) = 3."""
    sft_runs.start(epochs=1, shuffle=False)
    sft_runs.resume(epochs=2)
    assert [line["trained_tokens"] for line in sft_runs.metrics()] == [14, 13, 14, 13]


def test_a_finished_run_that_is_resumed_says_so_and_changes_nothing(sft_runs: Any) -> None:
    held_out = {"eval_dataset_path": sft_runs.settings["dataset_path"]}
    sft_runs.start(**held_out)
    table = next(line for line in sft_runs.said.splitlines() if line.startswith("held-out loss"))
    before = sft_runs.outcome("run")
    manifest = sft_runs.root / "run/checkpoints/step_000003/manifest.json"
    written = manifest.stat().st_mtime_ns
    sft_runs.resume()
    assert "nothing is left to do: 3 updates are made" in sft_runs.said
    assert table in sft_runs.said.splitlines()
    assert sft_runs.outcome("run") == before
    assert manifest.stat().st_mtime_ns == written


def test_the_held_out_loss_before_training_is_read_and_not_measured_again(sft_runs: Any) -> None:
    sft_runs.start(stop_after=1, eval_dataset_path=sft_runs.settings["dataset_path"])
    first = sft_runs.metrics()[0]
    sft_runs.resume()
    assert [line["step"] for line in sft_runs.metrics()] == [0, 1, 2, 3]
    assert sft_runs.metrics()[0] == first
    assert "held-out loss" in sft_runs.said


def test_changed_demonstrations_are_refused(sft_runs: Any, tmp_path: Path) -> None:
    sft_runs.start(stop_after=1)
    data = tmp_path / "data.jsonl"
    data.write_text(data.read_text().replace("eagle", "geese"))
    before = (tmp_path / "run/metrics.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match="the data are not the rows that the run was trained on"):
        sft_runs.resume()
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == before
    sft_runs.resume(allow_changes=True)
    assert "altered from here on: the data are not the rows" in sft_runs.said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 0.5}, "lr is 0.5 now but was 0.01"),
        ({"batch_size": 3}, "batch_size is 3 now but was 4"),
        ({"max_tokens": 100}, "max_tokens is 100 now but was not set"),
        ({"shuffle": False, "seed": None}, "shuffle is False now but was True"),
        ({"solution_key": "prompt"}, "solution_key is prompt now but was solution"),
    ],
)
def test_a_setting_that_would_alter_the_run_is_refused(sft_runs: Any, change: dict[str, Any], message: str) -> None:
    sft_runs.start(stop_after=1)
    if "seed" in change:  # it stands in the saved settings, and cannot act any more
        saved = sft_runs.root / "run/config.toml"
        saved.write_text(saved.read_text().replace("seed = 1\n", ""))
        change = {"shuffle": False}
    with pytest.raises(CheckpointError, match=message):
        sft_runs.resume(**change)


def test_the_end_of_a_cosine_cannot_move(sft_runs: Any) -> None:
    sft_runs.start("data", stop_after=1, lr_schedule="cosine")
    with pytest.raises(CheckpointError, match="epochs is 3 now but was 2"):
        sft_runs.resume("data", epochs=3)
    with pytest.raises(CheckpointError, match="max_steps is 9 now but was not set"):
        sft_runs.resume("data", max_steps=9)
    sft_runs.start("steps", stop_after=1, lr_schedule="cosine", max_steps=3)
    sft_runs.resume("steps", epochs=3)
    with pytest.raises(CheckpointError, match="max_steps is 9 now but was 3"):
        sft_runs.resume("steps", max_steps=9)


def test_a_run_of_the_other_command_is_refused_by_name(
    sft_runs: Any, run_training: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    supervised = sft_runs.start("sft", max_steps=1)
    reinforced = run_training(
        prompts=["a"], reward="def reward_fn(r):\n    return r.metadata['sample_index']\n", max_steps=1, batch_size=1
    )
    assert main(["train", "--resume", str(supervised)]) == 2
    assert f"error: {supervised} is a run of `dapo sft`\n" in capsys.readouterr().err
    assert main(["sft", "--resume", str(reinforced)]) == 2
    assert f"error: {reinforced} is a run of `dapo train`\n" in capsys.readouterr().err


def test_auto_looks_for_the_newest_run_of_its_own_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, table, started in (("a", "[sft]", 10), ("b", "[sft]", 20), ("c", "[rollout]", 30)):
        config = tmp_path / "runs" / name / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text(f"[model]\nckpt = '[sft]'\n{table}\n")
        os.utime(config, (started, started))
    assert newest_run(None, supervised=True) == RunFolder(Path("runs/b"))
    assert newest_run(None) == RunFolder(Path("runs/c"))


def test_resume_auto_on_the_command_line(sft_runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [word for name, value in sft_runs.settings.items() for word in ("--" + name.replace("_", "-"), str(value))]
    again = ["sft", *flags, "--save-path", str(tmp_path / "run"), "--resume", "auto"]
    assert main([*again, "--max-steps", "1"]) == 0
    assert "there is no run to go on with: starting a new one at update 0" in capsys.readouterr().out
    assert main([*again, "--max-steps", "2"]) == 0
    assert "after update 1" in capsys.readouterr().out
    assert [json.loads(line)["step"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()] == [1, 2]


def test_two_runs_cannot_share_a_folder(sft_runs: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run = sft_runs.start(max_steps=1)
    flags = [word for name, value in sft_runs.settings.items() for word in ("--" + name.replace("_", "-"), str(value))]
    assert main(["sft", *flags, "--save-path", str(run)]) == 2
    said = capsys.readouterr().err
    assert f"error: --save-path {run} already holds a run" in said
    assert f"--resume {run}" in said
