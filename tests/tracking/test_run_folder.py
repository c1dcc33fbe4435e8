"""The folder of a run: made whole or not at all, and never taken from another run."""

import os
import re
from pathlib import Path

import pytest

from dapo.errors import ConfigError
from dapo.tracking.run_folder import RunFolder, check_save_path


def test_a_new_folder_holds_the_settings_the_start_and_nothing_else(tmp_path):
    folder = RunFolder.create(tmp_path / "a" / "b", algo="dapo", config_toml="seed = 1\n")
    assert folder.path == tmp_path / "a" / "b"
    assert folder.config.read_text() == "seed = 1\n"
    assert sorted(entry.name for entry in folder.path.iterdir()) == ["config.toml", "started.txt"]


def test_parts_have_the_names_that_every_tool_looks_for(tmp_path):
    folder = RunFolder(tmp_path)
    parts = (folder.config, folder.metrics, folder.rollouts, folder.checkpoints, folder.final)
    assert [part.name for part in parts] == ["config.toml", "metrics.jsonl", "rollouts.jsonl", "checkpoints", "final"]


def test_the_default_name_is_the_time_and_the_algorithm_and_never_taken_twice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = [RunFolder.create(None, algo="gspo", config_toml="").path for _ in range(3)]
    assert len(set(paths)) == 3  # within one second, or not
    assert all(re.fullmatch(r"runs/\d{4}-\d\d-\d\d-\d{6}-gspo(-\d)?", str(path)) for path in paths)


@pytest.mark.parametrize("part", ["config.toml", "metrics.jsonl", "rollouts.jsonl", "checkpoints", "final"])
def test_a_folder_that_holds_a_part_of_a_run_is_refused_with_both_ways_on(tmp_path, part):
    (tmp_path / part).mkdir()
    with pytest.raises(ConfigError, match="already holds a run") as refused:
        RunFolder.create(tmp_path, algo="dapo", config_toml="")
    assert "another --save-path" in refused.value.fix
    assert f"--resume {tmp_path}" in refused.value.fix


def test_a_folder_with_other_files_may_be_used(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    RunFolder.create(tmp_path, algo="dapo", config_toml="seed = 1")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def bad_paths(tmp_path):
    (tmp_path / "file").write_text("")
    return {
        "below a file": tmp_path / "file" / "run",
        "a file": tmp_path / "file",
        "NUL": tmp_path / "a\0b",
        "too long": tmp_path / ("n" * 300) / "run",
    }


@pytest.mark.parametrize("kind", ["below a file", "a file", "NUL", "too long"])
def test_a_path_that_cannot_be_made_is_refused_before_and_at_the_start(tmp_path, kind):
    path = bad_paths(tmp_path)[kind]
    before = sorted(tmp_path.rglob("*"))
    for attempt in (lambda: check_save_path(path), lambda: RunFolder.create(path, algo="dapo", config_toml="")):
        with pytest.raises(ConfigError, match=r"run folder .* cannot be created") as refused:
            attempt()
        assert "--save-path" in refused.value.fix
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_parent_that_is_not_writable_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="not writable"):
        check_save_path(tmp_path / "run")


def test_a_parent_where_the_system_allows_no_folder_is_refused():
    with pytest.raises(ConfigError, match=r"run folder /proc/run cannot be created"):
        RunFolder.create(Path("/proc/run"), algo="dapo", config_toml="")


def test_checking_touches_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_save_path(tmp_path / "a" / "b")
    check_save_path(None)
    assert list(tmp_path.iterdir()) == []


def test_settings_that_cannot_be_written_leave_no_folder(tmp_path):
    with pytest.raises(ConfigError, match="cannot be created"):
        RunFolder.create(tmp_path / "run", algo="dapo", config_toml="name = '\udcff'")  # half a surrogate: no UTF-8
    assert list(tmp_path.iterdir()) == []


def test_only_a_run_can_be_opened(tmp_path):
    with pytest.raises(ConfigError, match=r"is not a run folder: it has no config.toml"):
        RunFolder.open(tmp_path)
    made = RunFolder.create(tmp_path, algo="dapo", config_toml="")
    assert RunFolder.open(tmp_path) == made
