"""Any words after `dapo`: help, or two lines and exit code 2."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dapo.cli.main import main
from dapo.config import OWNER

COMMANDS = ["train", "eval", "check-reward", "export", "plot", "show", "algorithms"]
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
FLAGS = st.sampled_from(
    ["--" + name.replace("_", "-") for name in OWNER]
    + ["--no-greedy", "--resume", "--allow-changes", "--step", "--out", "--dtype", "--rows", "--completion", "--group"]
)
VALUES = st.one_of(
    TEXT,
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(
        ["", "-", "--", "-1", "auto", "nan", "x" * 5000, "~nobody/x", "/dev/null", ".", "a:b:c.py:d", "@f"]
    ),
)
WORDS = st.lists(st.one_of(FLAGS, VALUES, st.tuples(FLAGS, VALUES).map("=".join)), max_size=6)
NOTHING_GOOD = ["--ckpt=./none", "--dataset-path=none.jsonl"]
"""Ends a command that would otherwise train, measure or score."""


@settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(command=st.sampled_from(COMMANDS) | TEXT, words=WORDS)
def test_any_words_are_help_or_two_lines_and_exit_code_2(
    workplace: Path, capfd: pytest.CaptureFixture[str], command: str, words: list[str]
) -> None:
    last = {"train": NOTHING_GOOD, "eval": NOTHING_GOOD, "check-reward": NOTHING_GOOD[1:]}.get(command, [])
    before = sorted(os.listdir())
    capfd.readouterr()
    try:
        code = main([command, *words, *last])
    except SystemExit as end:  # --help and --version
        code = end.code
    err = capfd.readouterr().err
    assert "Traceback" not in err
    if code != 0:
        assert code == 2
        assert re.fullmatch(r"error: .+\n  fix: .+\n", err, re.DOTALL), err
    assert sorted(os.listdir()) == before


LONG = "x" * 5000
"""Longer than any file system allows a name to be."""


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["train", "--resume", LONG], "is not a run folder"),
        (["train", "--resume", "auto", "--save-path", LONG, "--ckpt=m"], "neither dataset_path"),
        (["train", LONG], "no reward is set"),
        (["export", LONG, "--out", "o"], "is not a run folder"),
        (["show", LONG, "--step", "1"], "is not a run folder"),
        (["plot", LONG], "cannot read"),
        (["plot", "none"], "cannot read"),
        (["eval", "--device", "9" * 5000, "--ckpt=m", "--dataset-path=d"], "device is '999"),
        (["train", "--train-devices", "9" * 5000, "--ckpt=m", "--dataset-path=d", "--reward=math"], "train_devices is"),
        (["check-reward", "--rows", "9" * 5000], "--rows is"),
    ],
)
def test_names_and_numbers_beyond_every_limit(refused: Callable[..., Any], words: list[str], error: str) -> None:
    assert error in refused(*words).error


@pytest.mark.parametrize("ckpt", [LONG, "./" + LONG, "~no-such-person/model", "~no-such-person"])
def test_a_model_that_no_folder_can_be_named_like(refused_run: Callable[..., Any], ckpt: str) -> None:
    assert "does not exist" in refused_run(ckpt=ckpt).error


@pytest.mark.parametrize("out", [".", "/", ""])
def test_a_picture_needs_a_name(workplace: Path, refused: Callable[..., Any], out: str) -> None:
    Path("run").mkdir()
    Path("run/metrics.jsonl").write_text('{"step": 1, "entropy": 1.0}\n')
    assert "names a folder" in refused("plot", "run", "--out", out).error


def test_a_recipe_that_is_no_regular_file_is_refused_instead_of_waited_for(
    workplace: Path, refused: Callable[..., Any]
) -> None:
    os.mkfifo("pipe.toml")
    assert stat.S_ISFIFO(os.stat("pipe.toml").st_mode)
    assert refused("train", "pipe.toml").error == "recipe pipe.toml is not a regular file"
    assert refused("train", "/dev/zero").error == "recipe /dev/zero is not a regular file"


def test_more_reward_workers_than_a_machine_can_start_are_refused(refused_run: Callable[..., Any]) -> None:
    """Each is a process, and all are started at once."""
    assert refused_run(reward_workers=1025).error == "reward_workers is 1025"
    assert refused_run(reward_workers=2**63 - 1).fix.startswith("give a number of processes from 1 to 1024")


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ({"temperature": 1e-7}, "temperature is 1e-07"),
        ({"seed": 2**63}, f"seed is '{2**63}': it does not fit into 64 bits"),
        ({"dapo_clip_eps_high": 1e9}, "dapo_clip_eps_high is 1000000000.0, which no ratio reaches"),
        ({"clip_ratio_c": 1e9}, "clip_ratio_c is 1000000000.0, which no ratio reaches"),
    ],
)
def test_numbers_that_could_not_be_computed_with(
    refused_run: Callable[..., Any], flags: dict[str, Any], error: str
) -> None:
    """The largest ratio is exp(20) = 4.85e8; float32 cannot hold logits divided by much less than 1e-6."""
    assert refused_run(**flags).error.startswith(error)
