"""Going on with what is no run, with a damaged one, or with somebody else's.

Files that miss their checksum are the business of the checkpoint store's own tests; here the checksums are right, or
the folder was never a checkpoint.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from dapo.checkpoints.manifest import write_manifest
from dapo.checkpoints.random_states import random_states, restore_random_states
from dapo.checkpoints.store import Checkpoint
from dapo.cli.main import main

Refused = Callable[..., Any]
SEEDED = settings(
    max_examples=120, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
NEWEST = Path("run/checkpoints/step_000002")


def resume(refused: Refused, *words: str) -> Any:
    return refused("train", "--resume", "run", "--max-steps", "2", *words)


def sign_again(change: Callable[[Path], object]) -> None:
    """Changes the newest checkpoint and gives it right checksums: what a person's own script might leave."""
    change(NEWEST)
    (NEWEST / "manifest.json").unlink()
    write_manifest(NEWEST)


CONFIGS: dict[str, bytes] = {
    "empty": b"",
    "noise": bytes(range(256)),
    "another program's": b'[tool.poetry]\nname = "x"\n',
    "half": b'[model]\nckpt = "sm',
    "an unknown key": b"n_sample = 2\n",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_folder_whose_settings_are_garbage_is_not_gone_on_with(run_folder: Path, refused: Refused, name: str) -> None:
    (run_folder / "config.toml").write_bytes(CONFIGS[name])
    assert resume(refused).error


@pytest.mark.parametrize("name", ["a file", "a folder as settings", "a home folder", "a model folder"])
def test_what_is_no_run_folder_is_refused(
    workplace: Path, refused: Refused, tiny_folder: Callable[..., Path], name: str
) -> None:
    if name == "a file":
        Path("run").write_text("x")
    elif name == "a folder as settings":
        Path("run/config.toml").mkdir(parents=True)
    elif name == "a home folder":
        Path("run/.ssh").mkdir(parents=True)
    else:
        shutil.copytree(tiny_folder(), "run")
    assert resume(refused).error == "run is not a run folder: it has no config.toml"


def empty_the_newest() -> None:
    shutil.rmtree(NEWEST)
    NEWEST.mkdir()


def only_a_manifest() -> None:
    empty_the_newest()
    (NEWEST / "manifest.json").write_text('{"files": {}}')


def a_manifest_that_points_outside() -> None:
    """A file that anybody may write says nothing of this checkpoint."""
    empty_the_newest()
    (NEWEST / "manifest.json").write_text('{"files": {"../../../data.jsonl": {"bytes": 1, "sha256": "0"}}}')


def a_manifest_nested_deeply() -> None:
    (NEWEST / "manifest.json").write_text("[" * 100_000)


@pytest.mark.parametrize(
    "harm", [empty_the_newest, only_a_manifest, a_manifest_that_points_outside, a_manifest_nested_deeply]
)
def test_without_any_whole_checkpoint_nothing_is_started_anew(
    run_folder: Path, refused: Refused, harm: Callable[[], None]
) -> None:
    shutil.rmtree(run_folder / "checkpoints/step_000001")
    harm()
    assert resume(refused).error == "every checkpoint in run/checkpoints is damaged"


STATES: dict[str, Any] = {
    "no object": [],
    "null": None,
    "empty": {},
    "a count is text": {"updates": "2"},
    "a count is true": {"position": True},
    "a count is a fraction": {"updates": 2.5},
    "a count is negative": {"skipped_updates": -1},
    "random states are a list": {"random": []},
    "settings are a list": {"fingerprint": {"settings": [], "data": "", "reward": None, "held_out": None}},
    "a fingerprint of another version": {"fingerprint": {"settings": {}}},
    "buffered groups are text": {"buffered": "abc"},
    "buffered groups are numbers": {"buffered": [1]},
    "an unknown key": {"momentum": 1},
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_that_no_run_wrote_is_refused(run_folder: Path, refused: Refused, name: str) -> None:
    def change(checkpoint: Path) -> None:
        whole = json.loads((checkpoint / "state.json").read_text())
        given = STATES[name]
        (checkpoint / "state.json").write_text(json.dumps({**whole, **given} if given else given))

    sign_again(change)
    said = resume(refused)
    assert said.error == "run/checkpoints/step_000002/state.json was written by another version of dapo"


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from([[], {}, [1], [[1]], {"a": 1}, ["x"], "zz", "00", 2**31]),
)


@SEEDED
@given(data=st.data())
def test_any_value_in_the_state_is_taken_or_refused(
    run_folder: Path, answered_or_refused: Callable[..., bool], data: st.DataObject
) -> None:
    file = NEWEST / "state.json"
    whole = json.loads((run_folder / "checkpoints/step_000001/state.json").read_text())
    key = data.draw(st.sampled_from(list(whole)))
    if isinstance(whole[key], dict) and whole[key] and data.draw(st.booleans()):
        whole[key][data.draw(st.sampled_from(list(whole[key])))] = data.draw(JUNK)
    else:
        whole[key] = data.draw(JUNK)
    file.write_text(json.dumps(whole))
    before = random_states()

    def go_on() -> None:
        state = Checkpoint(2, NEWEST).state()
        state.fingerprint.changes(state.fingerprint)
        restore_random_states(dict(state.random))

    try:
        answered_or_refused(go_on)
    finally:
        restore_random_states(before)


def an_optimizer_of_noise(checkpoint: Path) -> None:
    (checkpoint / "optimizer.safetensors").write_bytes(bytes(range(256)))


def no_optimizer(checkpoint: Path) -> None:
    (checkpoint / "optimizer.safetensors").unlink()


def a_pickled_optimizer(checkpoint: Path) -> None:
    with (checkpoint / "optimizer.safetensors").open("wb") as file:
        pickle.dump({"state": 1}, file)


def moments_of_another_shape(checkpoint: Path) -> None:
    tensors = load_file(checkpoint / "optimizer.safetensors")
    changed = {name: torch.zeros(3) if name.startswith("exp_avg.") else each for name, each in tensors.items()}
    save_file(changed, checkpoint / "optimizer.safetensors")


def no_model(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "model")


def a_model_of_noise(checkpoint: Path) -> None:
    (checkpoint / "model/model.safetensors").write_bytes(bytes(range(256)))


@pytest.mark.parametrize(
    ("harm", "error"),
    [
        (an_optimizer_of_noise, "step_000002/optimizer.safetensors cannot be read"),
        (no_optimizer, "step_000002/optimizer.safetensors cannot be read"),
        (a_pickled_optimizer, "step_000002/optimizer.safetensors cannot be read"),
        (moments_of_another_shape, "the optimizer's exp_avg of"),
        (no_model, "cannot load the tokenizer of run/checkpoints/step_000002/model"),
        (a_model_of_noise, "cannot load the model of run/checkpoints/step_000002/model"),
    ],
)
def test_tensors_that_cannot_be_used_are_refused_and_the_run_stays_as_it_is(
    run_folder: Path, refused: Refused, harm: Callable[[Path], None], error: str
) -> None:
    sign_again(harm)
    assert error in resume(refused).error


def test_another_runs_checkpoint_in_this_folder_is_refused(
    run_folder: Path, refused: Refused, tiny_folder: Callable[..., Path]
) -> None:
    """The same data and reward, another seed."""
    config = (run_folder / "config.toml").read_text()
    (run_folder / "config.toml").write_text(config.replace("seed = 1\n", "seed = 2\n"))
    assert "would go on as another run: seed is 2 now but was 1" in resume(refused).error


@pytest.mark.skipif(os.geteuid() != 0, reason="others are refused by the permissions of the folder itself")
def test_a_folder_that_cannot_be_written_is_refused(run_folder: Path, refused: Refused) -> None:
    """Permissions do not bind root, so a folder stands where the lock should be."""
    (run_folder / ".lock").unlink()
    (run_folder / ".lock").mkdir()
    assert resume(refused).error == "cannot write run/.lock: Is a directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_read_only_run_folder_is_refused(run_folder: Path, refused: Refused) -> None:
    (run_folder / ".lock").unlink()
    run_folder.chmod(0o500)
    try:
        assert "Permission denied" in resume(refused).error
    finally:
        run_folder.chmod(0o700)


@pytest.mark.parametrize(
    "noise", ["not json\n", '{"step": "two"}\n', "[" * 100_000 + "\n", '{"step": 1, "loss": "x"}\n']
)
@pytest.mark.parametrize("command", ["train", "plot"])
def test_a_damaged_line_of_metrics_is_named(run_folder: Path, refused: Refused, command: str, noise: str) -> None:
    lines = (run_folder / "metrics.jsonl").read_text()
    (run_folder / "metrics.jsonl").write_text(noise + lines)
    words = {"train": ["train", "--resume", "run"], "plot": ["plot", "run"]}[command]
    said = refused(*words)
    assert "run/metrics.jsonl" in said.error
    assert "remove" in said.fix


ROLLOUTS = {
    "no group": '{"step": 1}\n',
    "no answers": '{"step": 1, "group": 0, "status": "trained", "prompt": "a", "completions": null}\n',
    "answers are text": '{"step": 1, "group": 0, "status": "trained", "prompt": "a", "completions": "abc"}\n',
    "answers lack all": '{"step": 1, "group": 0, "status": "trained", "prompt": "a", "completions": [{}]}\n',
}


@pytest.mark.parametrize("name", ROLLOUTS)
def test_a_damaged_group_is_not_shown(run_folder: Path, refused: Refused, name: str) -> None:
    (run_folder / "rollouts.jsonl").write_text(ROLLOUTS[name])
    assert "no group that can be shown" in refused("show", "run", "--step", "1").error


@pytest.mark.parametrize("out", ["x" * 5000, "run", "data.jsonl"])
def test_an_export_to_no_free_folder_is_refused(run_folder: Path, refused: Refused, out: str) -> None:
    assert main(["export", "run", "--out", "free"]) == 0
    said = refused("export", "run", "--out", out)
    assert "--out" in said.error
