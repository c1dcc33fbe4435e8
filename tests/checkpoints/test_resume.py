"""A run that is stopped and resumed is the unbroken run, byte for byte."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dapo.checkpoints.fingerprint import JUDGED_BY_CONTENT, MAY_CHANGE
from dapo.checkpoints.manifest import write_manifest
from dapo.checkpoints.random_states import random_states, restore_random_states, seed_random_states
from dapo.cli.main import main
from dapo.config import OWNER, load_config
from dapo.coordination.resume import newest_run
from dapo.errors import CheckpointError, ConfigError, DapoError, SamplingLimitError
from dapo.tracking.run_folder import RunFolder

Outcome = Callable[[Path], dict[str, Any]]


def rollouts(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "rollouts.jsonl").read_text().splitlines()]


def state_of(run: Path, step: int) -> dict[str, Any]:
    return json.loads((run / f"checkpoints/step_{step:06d}/state.json").read_text())


@pytest.mark.parametrize("stop_after", [1, 2, 5])
def test_a_stopped_and_resumed_run_equals_the_unbroken_one_byte_for_byte(
    tiny_runs: Any, outcome_of: Outcome, stop_after: int
) -> None:
    """B68: answers after the resume are the very ones; so are weights, optimizer, random states and metrics."""
    unbroken = outcome_of(tiny_runs.start("unbroken"))
    tiny_runs.start("broken", stop_after=stop_after)
    assert "go on with: dapo train --resume" in tiny_runs.said
    run = tiny_runs.resume("broken", keep_checkpoints=1)
    assert outcome_of(run) == unbroken


def test_a_bfloat16_run_goes_on_from_its_float32_masters(tiny_runs: Any, outcome_of: Outcome) -> None:
    """Without them the resumed run would start from weights rounded to 8 bits."""
    unbroken = outcome_of(tiny_runs.start("unbroken", dtype="bfloat16"))
    tiny_runs.start("broken", stop_after=3, dtype="bfloat16")
    assert outcome_of(tiny_runs.resume("broken", keep_checkpoints=1)) == unbroken


def test_another_number_of_threads_is_said(tiny_runs: Any) -> None:
    """Sums are then rounded otherwise: the run goes on, but does not repeat the unbroken one."""
    run = tiny_runs.start("broken", stop_after=2)
    state = run / "checkpoints/step_000002/state.json"
    plain = json.loads(state.read_text())
    assert plain["threads"] == torch.get_num_threads()
    for threads, said in ((7, True), (None, False)):  # None: an older version left it out
        state.write_text(json.dumps({**plain, "threads": threads}))
        (state.parent / "manifest.json").unlink()
        write_manifest(state.parent)
        tiny_runs.resume("broken", stop_after=3)
        assert ("the run computed with 7 threads and goes on with" in tiny_runs.said) == said
        assert ("set OMP_NUM_THREADS=7" in tiny_runs.said) == said
        shutil.rmtree(run / "checkpoints/step_000003")


def every_group_disagrees(runs: Any) -> None:
    """The two answers to a prompt score 0 and 1, so each round of 5 keeps 5 groups, of which updates train 2."""
    (runs.root / "reward.py").write_text("def reward_fn(record):\n    return record.metadata['sample_index']\n")


def test_surplus_groups_wait_in_the_checkpoint_with_their_versions(tiny_runs: Any, outcome_of: Outcome) -> None:
    """B65: draws 0 to 4 all disagree; update 1 trains 0 and 1, so 2, 3 and 4 wait, and update 2 trains 2 and 3."""
    every_group_disagrees(tiny_runs)
    unbroken = outcome_of(tiny_runs.start("unbroken"))
    run = tiny_runs.start("broken", stop_after=1)
    waiting = state_of(run, 1)["buffered"]
    assert [(group["id"], group["version"]) for group in waiting] == [(2, 0), (3, 0), (4, 0)]
    tiny_runs.resume("broken", keep_checkpoints=1)
    trained = [group for group in rollouts(run) if group["step"] == 2]
    assert [(group["group"], group["status"], group["version"]) for group in trained] == [
        (2, "trained", 0),
        (3, "trained", 0),
    ]
    logprobs = [[answer["logprobs"] for answer in group["completions"]] for group in (*waiting[:2], *trained)]
    assert logprobs[:2] == logprobs[2:]
    assert outcome_of(run) == unbroken


def test_a_checkpoint_on_the_border_of_an_epoch_goes_on_into_the_next(tiny_runs: Any, outcome_of: Outcome) -> None:
    """B65: 12 prompts, 4 per update without filtering: update 3 ends epoch 1; 2 epochs are 6 updates."""
    plain = {"algo": "grpo", "batch_size": 4, "epochs": 2, "max_steps": None}
    tiny_runs.settings = {
        name: value
        for name, value in (tiny_runs.settings | plain).items()
        if name not in ("max_staleness", "dapo_gen_batch_size") and value is not None
    }
    unbroken = tiny_runs.start("unbroken")
    tiny_runs.start("broken", stop_after=3)
    assert state_of(tiny_runs.root / "broken", 3)["position"] == 12
    run = tiny_runs.resume("broken", keep_checkpoints=1)
    assert outcome_of(run) == outcome_of(unbroken)
    rows = [group["prompt_index"] for group in rollouts(run)]
    assert [group["step"] for group in rollouts(run)] == [step for step in range(1, 7) for _ in range(4)]
    assert sorted(rows[:12]) == sorted(rows[12:]) == list(range(12))
    assert rows[:12] != rows[12:]


def test_a_finished_run_goes_on_when_max_steps_is_raised(tiny_runs: Any, outcome_of: Outcome) -> None:
    unbroken = outcome_of(tiny_runs.start("unbroken"))
    tiny_runs.start("short", max_steps=3)
    run = tiny_runs.resume("short", max_steps=6, keep_checkpoints=1)
    assert outcome_of(run) == unbroken
    assert "max_steps = 6" in (run / "config.toml").read_text()


def test_a_finished_run_that_is_resumed_says_so_and_changes_nothing(tiny_runs: Any, outcome_of: Outcome) -> None:
    before = outcome_of(tiny_runs.start("run", max_steps=2))
    after = outcome_of(tiny_runs.resume("run"))
    assert "nothing is left to do: 2 updates are made" in tiny_runs.said
    assert after == before


def test_what_came_after_the_checkpoint_is_rolled_back(tiny_runs: Any, outcome_of: Outcome) -> None:
    """Killed after update 5 with the last checkpoint at 4: the lines of update 5 and half a line are done over."""
    unbroken = outcome_of(tiny_runs.start("unbroken", save_interval=2, keep_checkpoints=3))
    run = tiny_runs.start("killed", save_interval=2, stop_after=5, keep_checkpoints=3)
    for path in (run / "checkpoints/step_000005").rglob("*"):
        if path.is_file():
            path.unlink()  # as if the kill had come before it was whole
    (run / "metrics.jsonl").open("a").write('{"step": 6, "lo')
    (run / "checkpoints/.tmp-step_000006").mkdir()
    assert outcome_of(tiny_runs.resume("killed")) == unbroken
    assert "going on from" in tiny_runs.said
    assert "step_000004, after update 4" in tiny_runs.said
    assert [path.name for path in sorted((run / "checkpoints").iterdir())] == [
        "step_000002",
        "step_000004",
        "step_000006",
    ]


def test_a_run_killed_before_its_first_checkpoint_starts_again_and_says_so(tiny_runs: Any, outcome_of: Outcome) -> None:
    unbroken = outcome_of(tiny_runs.start("unbroken"))
    run = tiny_runs.start("killed", stop_after=1)
    for path in sorted((run / "checkpoints/step_000001").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (run / "checkpoints/step_000001").rmdir()
    assert outcome_of(tiny_runs.resume("killed")) == unbroken
    assert "has no checkpoint yet: starting at update 0" in tiny_runs.said


def test_a_run_folder_may_move_with_its_data_and_without_its_first_model(
    tiny_runs: Any, outcome_of: Outcome, tmp_path: Path
) -> None:
    tiny_runs.settings["ckpt"] = str(shutil.copytree(tiny_runs.settings["ckpt"], tmp_path / "model"))
    unbroken = outcome_of(tiny_runs.start("unbroken"))
    run = tiny_runs.start("here", stop_after=2)
    run.rename(tmp_path / "there")
    shutil.rmtree(tmp_path / "model")
    (tmp_path / "data.jsonl").rename(tmp_path / "moved.jsonl")
    moved = tiny_runs.resume("there", dataset_path=str(tmp_path / "moved.jsonl"), keep_checkpoints=1)
    assert outcome_of(moved) == unbroken


def test_the_held_out_result_before_training_is_read_and_not_measured_again(tiny_runs: Any) -> None:
    held_out = {"eval_dataset_path": tiny_runs.settings["dataset_path"], "eval_n": 1, "max_steps": 3}
    tiny_runs.start("unbroken", **held_out)
    table = tiny_runs.said[tiny_runs.said.index("held-out accuracy") :].splitlines()[0]
    run = tiny_runs.start("broken", **held_out, stop_after=1)
    tiny_runs.resume("broken")
    assert tiny_runs.said[tiny_runs.said.index("held-out accuracy") :].splitlines()[0] == table
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps == [0, 1, 2, 3]


def test_changed_data_are_refused_and_named(tiny_runs: Any, tmp_path: Path) -> None:
    """B74: a position in other data means nothing."""
    tiny_runs.start("run", stop_after=1)
    before = (tmp_path / "run/metrics.jsonl").read_bytes()
    with (tmp_path / "data.jsonl").open("a") as data:
        data.write('{"prompt": "one more"}\n')
    with pytest.raises(CheckpointError, match="the data are not the rows that the run was trained on"):
        tiny_runs.resume("run")
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == before
    tiny_runs.resume("run", allow_changes=True)
    assert "altered from here on: the data are not the rows" in tiny_runs.said


def test_a_changed_reward_file_is_refused_and_named(tiny_runs: Any, tmp_path: Path) -> None:
    tiny_runs.start("run", stop_after=1)
    (tmp_path / "reward.py").write_text("def reward_fn(record):\n    return float(len(record.completion) % 2)\n")
    with pytest.raises(CheckpointError, match="the reward function is not the one"):
        tiny_runs.resume("run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 0.5}, "lr is 0.5 now but was 0.01"),
        ({"seed": 1}, "seed is 1 now but was 0"),
        ({"n_samples": 3}, "n_samples is 3 now but was 2"),
        ({"ckpt": "other"}, "ckpt is other now but was .*: the weights come from the checkpoint"),
    ],
)
def test_a_setting_that_would_alter_the_run_is_refused_and_named(
    tiny_runs: Any, change: dict[str, Any], message: str
) -> None:
    tiny_runs.start("run", stop_after=1)
    with pytest.raises(CheckpointError, match=message):
        tiny_runs.resume("run", **change)


def test_allow_changes_goes_on_with_the_new_setting(tiny_runs: Any) -> None:
    run = tiny_runs.start("run", stop_after=1)
    tiny_runs.resume("run", allow_changes=True, lr=0.5)
    assert "the run is altered from here on: lr is 0.5 now but was 0.01" in tiny_runs.said
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["lr"] for line in lines][:2] == [0.01, 0.5]


def test_max_steps_is_part_of_a_cosine_and_cannot_change(tiny_runs: Any) -> None:
    tiny_runs.start("run", stop_after=1, lr_schedule="cosine")
    with pytest.raises(CheckpointError, match="max_steps is 9 now but was 6"):
        tiny_runs.resume("run", max_steps=9)


def test_settings_that_may_change_exist() -> None:
    assert OWNER.keys() >= MAY_CHANGE | JUDGED_BY_CONTENT


def test_a_run_that_fails_while_collecting_is_saved_as_it_was(tiny_runs: Any, outcome_of: Outcome) -> None:
    """With a reward that says the same of all, update 3 finds no groups; with the good one it is made after all."""
    unbroken = outcome_of(tiny_runs.start("unbroken", max_steps=3))
    run = tiny_runs.start("run", stop_after=2)
    reward = tiny_runs.root / "reward.py"
    good = reward.read_text()
    reward.write_text("def reward_fn(record):\n    return {'score': 1.0, 'acc': 1.0}\n")
    changed = {"max_steps": 3, "dapo_max_num_gen_batches": 1, "max_staleness": 0}
    with pytest.raises(SamplingLimitError):
        tiny_runs.resume("run", allow_changes=True, **changed)
    assert (run / "final/model.safetensors").exists()
    reward.write_text(good)
    changed = {"max_steps": 3, "dapo_max_num_gen_batches": 10, "max_staleness": 2}
    assert outcome_of(tiny_runs.resume("run", allow_changes=True, keep_checkpoints=1, **changed)) == unbroken


def test_auto_takes_the_run_in_save_path_or_the_one_started_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B66: with nothing to find, auto means a new run."""
    monkeypatch.chdir(tmp_path)
    assert newest_run(None) is None
    assert newest_run(tmp_path / "missing") is None
    for name, started in (("a", 20), ("b", 10)):
        config = tmp_path / "runs" / name / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text("")
        os.utime(config, (started, started))
    (tmp_path / "runs" / "notes").mkdir()
    assert newest_run(None) == RunFolder(Path("runs/a"))
    assert newest_run(Path("runs/b")) == RunFolder(Path("runs/b"))


def command(settings: dict[str, Any], *more: str) -> int:
    flags = [word for name, value in settings.items() for word in ("--" + name.replace("_", "-"), str(value))]
    return main(["train", *flags, *more])


def test_resume_auto_starts_a_new_run_with_a_notice_when_there_is_none(
    tiny_runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tiny_runs.settings | {"save_path": tmp_path / "run", "max_steps": 1}
    assert command(settings, "--resume", "auto") == 0
    assert "there is no run to go on with: starting a new one at update 0" in capsys.readouterr().out
    assert command(settings | {"max_steps": 2}, "--resume", "auto") == 0
    assert "after update 1" in capsys.readouterr().out
    assert [json.loads(line)["step"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()] == [1, 2]


@pytest.mark.parametrize("made", [True, False])
def test_resume_of_a_folder_without_a_run_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made: bool
) -> None:
    """B66: an explicit path is never a new run."""
    if made:
        (tmp_path / "run").mkdir()
    assert main(["train", "--resume", str(tmp_path / "run")]) == 2
    assert "is not a run folder" in capsys.readouterr().err
    assert (tmp_path / "run").exists() == made


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--allow-changes"], "--allow-changes is given but --resume is not"),
        (["--resume", "a", "--save-path", "b"], "--save-path is b but --resume is a"),
    ],
)
def test_flags_that_contradict_a_resume_are_refused(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words]) == 2
    assert problem in capsys.readouterr().err


def test_fewer_epochs_than_are_done_are_refused(tiny_runs: Any) -> None:
    """Rounds of 5 come before updates 1, 3 (one group waits) and 6 (none does): 15 draws, 12 of them in epoch 1."""
    every_group_disagrees(tiny_runs)
    tiny_runs.start("run")
    assert state_of(tiny_runs.root / "run", 6)["position"] == 15
    with pytest.raises(DapoError, match="data position 15 is outside the 12 draws"):
        tiny_runs.resume("run", epochs=1)


def test_every_random_generator_goes_on_where_it_was() -> None:
    """B68."""
    seed_random_states(3)
    assert torch.rand(1).item() == torch.rand(1, generator=torch.Generator().manual_seed(3)).item()
    random.gauss(0, 1)
    np.random.normal()
    kept = json.loads(json.dumps(random_states()))
    expected = random.random(), random.gauss(0, 1), np.random.normal(), np.random.rand(), torch.rand(3).tolist()
    seed_random_states(4)
    restore_random_states(kept)
    drawn = random.random(), random.gauss(0, 1), np.random.normal(), np.random.rand(), torch.rand(3).tolist()
    assert drawn == expected


def test_a_resumed_run_restores_the_random_generators(tiny_runs: Any) -> None:
    tiny_runs.start("run", stop_after=1)
    saved = state_of(tiny_runs.root / "run", 1)["random"]
    torch.manual_seed(99)
    tiny_runs.resume("run", max_steps=1)
    assert json.loads(json.dumps(random_states())) == saved


def test_the_resolved_settings_load_again(tiny_runs: Any) -> None:
    run = tiny_runs.start("run", max_steps=1)
    assert load_config(None, {}, saved=run / "config.toml").to_toml() == (run / "config.toml").read_text()


def test_flags_lie_over_the_recipe_and_both_over_the_saved_settings(tiny_runs: Any, tmp_path: Path) -> None:
    run = tiny_runs.start("run", max_steps=1)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("save_interval = 3\nkeep_checkpoints = 3\n")
    config = load_config(recipe, {"keep_checkpoints": 4}, saved=run / "config.toml").run
    assert (config.max_steps, config.save_interval, config.keep_checkpoints) == (1, 3, 4)


def test_bad_checkpoint_settings_are_refused() -> None:
    base = {"ckpt": "x", "dataset_path": "task:arithmetic", "reward": "math"}
    for name, value, message in (
        ("save_interval", -1, "save_interval is -1"),
        ("keep_checkpoints", 0, "keep_checkpoints is 0"),
        ("max_skipped_updates", 0, "max_skipped_updates is 0"),
        ("keep_best", True, "keep_best is on but eval_dataset_path is not set"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_config(None, {**base, name: value})
