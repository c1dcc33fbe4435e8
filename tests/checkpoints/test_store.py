"""Checkpoints on the disk: whole or not there, found in the order of their numbers, never trusted unread."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from dapo.checkpoints.fingerprint import Fingerprint
from dapo.checkpoints.manifest import damage, write_manifest
from dapo.checkpoints.random_states import random_states
from dapo.checkpoints.run_lock import only_process
from dapo.checkpoints.run_state import RunState
from dapo.checkpoints.store import CheckpointStore
from dapo.checkpoints.whole_folder import written_whole
from dapo.errors import CheckpointError, ConfigError, DapoError
from dapo.models.language_model import LanguageModel
from dapo.models.saved_state import write_trained
from dapo.records import Completion, Group, Prompt, Score


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints")


@pytest.fixture
def model(load_tiny: Callable[..., LanguageModel]) -> LanguageModel:
    return load_tiny()


def state(updates: int, **changes: Any) -> RunState:
    return RunState(
        **{
            "updates": updates,
            "position": 0,
            "buffered": (),
            "skipped_updates": 0,
            "skipped_in_a_row": 0,
            "reward_failures": 0,
            "random": random_states(),
            "fingerprint": Fingerprint({}, "d", None, None),
            **changes,
        }
    )


def save(store: CheckpointStore, model: LanguageModel, updates: int, accuracy: float | None = None) -> Path:
    tensors = {"exp_avg.w": torch.tensor([float(updates)])}
    return store.save(
        state(updates, heldout_accuracy=accuracy), lambda folder: write_trained(folder, model, tensors)
    ).path


def ignore(_: str) -> None:
    pass


def whole(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "state.json").write_text("{}")
    write_manifest(folder)


def test_the_newest_is_found_by_number_among_foreign_names(store: CheckpointStore) -> None:
    """B66: the literal names."""
    for name in ("step_9", "step_10", "step_10-hf", "step_11.tmp"):
        whole(store.folder / name)
    (store.folder / "notes.txt").write_text("mine")
    assert list(store.paths()) == [9, 10]
    newest = store.newest(ignore)
    assert newest is not None
    assert newest.path.name == "step_10"


@pytest.mark.parametrize("made", [True, False])
def test_an_empty_or_missing_folder_has_no_newest(store: CheckpointStore, made: bool) -> None:
    """B66."""
    if made:
        store.folder.mkdir()
    assert store.newest(ignore) is None
    assert store.best() is None


def test_the_best_is_the_newest_of_equal_ones_and_a_missing_metric_does_no_harm(
    store: CheckpointStore, model: LanguageModel
) -> None:
    """B66."""
    for step, accuracy in ((1, 0.5), (2, 0.75), (3, None), (4, 0.75), (5, 0.25)):
        save(store, model, step, accuracy)
    assert store.best() == (4, 0.75)


def test_old_ones_are_forgotten_but_the_best_is_kept_where_wanted(store: CheckpointStore, model: LanguageModel) -> None:
    for step, accuracy in ((8, 0.75), (9, 0.5), (10, None), (11, 0.25)):
        save(store, model, step, accuracy)
    assert store.forget(2, newest=11, keep_best=True) == []
    assert list(store.paths()) == [8, 10, 11]
    assert store.forget(2, newest=11, keep_best=False) == []
    assert list(store.paths()) == [10, 11]


def test_equal_runs_write_equal_bytes(tmp_path: Path, model: LanguageModel) -> None:
    """No time, place or machine is in a checkpoint."""
    random = random_states()
    saved = [
        CheckpointStore(tmp_path / name)
        .save(state(1, random=random), lambda folder: write_trained(folder, model, {"step.w": torch.ones(1)}))
        .path
        for name in ("a", "b")
    ]
    contents = [
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in saved
    ]
    assert contents[0] == contents[1]
    assert {path.as_posix() for path in contents[0]} >= {
        "state.json",
        "optimizer.safetensors",
        "manifest.json",
        "model/model.safetensors",
        "model/config.json",
        "model/tokenizer.json",
    }


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [truncate, flip_a_bit, Path.unlink], ids=["truncated", "bit flipped", "removed"])
@pytest.mark.parametrize(
    "file", ["state.json", "optimizer.safetensors", "model/model.safetensors", "model/tokenizer.json", "manifest.json"]
)
def test_a_damaged_file_is_noticed_said_aloud_and_the_checkpoint_before_is_taken(
    store: CheckpointStore, model: LanguageModel, file: str, harm: Callable[[Path], None]
) -> None:
    for step in (1, 2):
        save(store, model, step)
    harm(store.folder / "step_000002" / file)
    said: list[str] = []
    found = store.newest(said.append)
    assert found is not None
    assert found.step == 1
    (line,) = said
    assert "step_000002 is damaged" in line
    assert file in line or (file, harm) == ("manifest.json", flip_a_bit)  # then a file misses its checksum


def test_with_every_checkpoint_damaged_there_is_an_error_and_no_silent_new_start(
    store: CheckpointStore, model: LanguageModel
) -> None:
    truncate(save(store, model, 1) / "state.json")
    with pytest.raises(CheckpointError, match=r"every checkpoint in .* is damaged"):
        store.newest(ignore)


def test_a_chosen_step_must_be_there_and_whole(store: CheckpointStore, model: LanguageModel) -> None:
    save(store, model, 1)
    truncate(save(store, model, 2) / "state.json")
    with pytest.raises(CheckpointError, match="no checkpoint of step 3\n  fix: use one of 1, 2"):
        store.at(3)
    with pytest.raises(CheckpointError, match=r"state\.json has \d+ bytes instead of \d+\n  fix: use one of 1"):
        store.at(2)


def test_nothing_is_unpickled_from_a_checkpoint(store: CheckpointStore, model: LanguageModel) -> None:
    suffixes = {path.suffix for path in save(store, model, 1).rglob("*") if path.is_file()}
    assert suffixes == {".json", ".safetensors", ".jinja"}


def test_a_group_comes_back_exactly() -> None:
    """float32 log-probabilities: 1/3 rounded to 24 bits is 0.3333333432674408, and back it is the same number."""
    third = torch.tensor(-1 / 3).item()
    assert third == -0.3333333432674408
    group = Group(
        id=7,
        prompt=Prompt(3, "häh\ud800", (1, 2), answer=[True, "x"]),
        completions=(Completion((5, 0), (third, -0.0), "a\x00b", "stop"), Completion((6,), (-1e-30,), "", "length")),
        scores=(Score(0.1 + 0.2, {"acc": 1.0}), Score(-0.0)),
        version=4,
    )
    (restored,) = RunState.from_json(state(5, buffered=(group,)).to_json()).buffered
    assert restored == group
    assert str(restored.completions[0].logprobs[1]) == "-0.0"


def test_a_kill_while_writing_leaves_the_old_folder_and_no_taken_half(tmp_path: Path) -> None:
    target = tmp_path / "step_000001"
    whole(target)

    def write_until_killed() -> None:
        with written_whole(target) as aside:
            (aside / "state.json").write_text("new")
            assert (target / "state.json").read_text() == "{}"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_until_killed()
    assert damage(target) is None
    assert [path.name for path in tmp_path.iterdir()] == ["step_000001"]


def test_a_leftover_of_a_killed_process_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".tmp-final").mkdir()
    (tmp_path / ".tmp-final" / "old").write_text("half")
    with written_whole(tmp_path / "final") as aside:
        (aside / "new").write_text("whole")
    assert [path.name for path in (tmp_path / "final").iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """The system refuses files beyond this size, as a full disk does at that byte."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@pytest.mark.parametrize("size", [0, 100, 3_000, 50_000])
def test_a_full_disk_is_a_clear_error_and_the_checkpoint_before_is_intact(
    store: CheckpointStore, model: LanguageModel, size: int
) -> None:
    """Wherever in the writing it happens: state.json is 20 kB, the weights 80 kB, the manifest 1 kB."""
    before = save(store, model, 1)
    with files_up_to(size), pytest.raises(DapoError, match=r"cannot write .*step_000002: .*\n  fix: free the disk"):
        save(store, model, 2)
    assert damage(before) is None
    assert [path.name for path in store.folder.iterdir()] == ["step_000001"]


def test_a_second_process_is_kept_out_of_a_run_folder(tmp_path: Path) -> None:
    """Another open file stands for another process: the system tells locks apart by it."""
    with (
        only_process(tmp_path),
        pytest.raises(ConfigError, match="in use by another process"),
        only_process(tmp_path),
    ):
        pass
    with only_process(tmp_path):
        pass


def test_a_run_holds_the_lock_while_it_trains(tiny_runs: Any) -> None:
    def try_to_resume(step: int) -> None:
        with pytest.raises(ConfigError, match="in use by another process"), only_process(tiny_runs.root / "run"):
            pass
        tried.append(step)

    tried: list[int] = []
    tiny_runs.start("run", max_steps=1, when_done=try_to_resume)
    tiny_runs.resume("run", max_steps=2, when_done=try_to_resume)
    assert tried == [1, 2]


@pytest.mark.parametrize(
    ("interval", "keep", "steps"), [(1, 2, [5, 6]), (2, 5, [2, 4, 6]), (4, 5, [4, 6]), (0, 9, [6])]
)
def test_checkpoints_are_saved_at_the_interval_and_at_the_end_and_so_many_kept(
    tiny_runs: Any, interval: int, keep: int, steps: list[int]
) -> None:
    run = tiny_runs.start("run", save_interval=interval, keep_checkpoints=keep)
    assert list(CheckpointStore(run / "checkpoints").paths()) == steps


def test_keep_best_saves_and_keeps_the_best_measured_update(tiny_runs: Any) -> None:
    """The newest one alone is kept otherwise."""
    held_out = {"eval_dataset_path": tiny_runs.settings["dataset_path"], "eval_interval": 1, "eval_n": 4}
    run = tiny_runs.start("run", keep_best=True, keep_checkpoints=1, **held_out)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    best = max((line["heldout_accuracy"], line["step"]) for line in lines[1:])
    assert list(CheckpointStore(run / "checkpoints").paths()) == sorted({best[1], 6})
    plain = tiny_runs.start("plain", keep_checkpoints=1, **held_out)
    assert list(CheckpointStore(plain / "checkpoints").paths()) == [6]


def test_a_full_disk_during_a_run_keeps_the_last_checkpoint_and_the_run_goes_on_later(
    tiny_runs: Any, outcome_of: Callable[[Path], dict[str, Any]]
) -> None:
    unbroken = outcome_of(tiny_runs.start("unbroken"))

    def fill_the_disk(step: int) -> None:
        if step == 2:
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))

    try:
        with pytest.raises(DapoError, match=r"cannot write .*step_000002"):
            tiny_runs.start("run", save_interval=1, when_done=fill_the_disk)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert list(CheckpointStore(tiny_runs.root / "run/checkpoints").paths()) == [1]
    assert outcome_of(tiny_runs.resume("run", save_interval=0, keep_checkpoints=1)) == unbroken
