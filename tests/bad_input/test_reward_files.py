"""Reward files that a run cannot use, refused before a model is loaded and without a run folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dapo.records import Completion, Prompt
from dapo.rewards import worker_process
from dapo.rewards.pool import RewardPool
from dapo.rewards.settings import RewardSettings
from dapo.rewards.user_function import load_user_function

FILES: dict[str, tuple[str, str]] = {
    "does not compile": ("def reward_fn(record:\n", "SyntaxError"),
    "does not compile: NUL": ("x = '\0'\n", "null bytes"),
    "not UTF-8": ("x = '\udcff'\n", "SyntaxError"),
    "raises": ("raise ValueError('not today')\n", "ValueError: not today"),
    "raises what no Exception is": ("class Panic(BaseException): pass\nraise Panic('late')\n", "Panic: late"),
    "exits": ("import sys\nsys.exit(0)\n", "SystemExit: 0"),
    "recurses": ("def f(): return f()\nf()\n", "RecursionError"),
    "ends the process": ("import os\nos._exit(0)\n", "did not start: its process ended with code 0"),
    "kills the process": ("import os\nos.kill(os.getpid(), 9)\n", "did not start: its process ended with code -9"),
    "closes all pipes": ("import os\nos.closerange(0, 100)\n", "did not start"),
    "babbles on the pipe": (
        "import os\nfor fd in range(3, 20):\n    try: os.write(fd, b'\\0' * 7 + b'\\2{]')\n    except OSError: pass\n",
        "did not start",
    ),
    "no function": ("reward_fn = 3\n", "has no function"),
    "no parameter": ("def reward_fn(): return 1.0\n", "none of the three known contracts"),
    "two parameters": ("def reward_fn(a, b): return 1.0\n", "none of the three known contracts"),
    "only keywords": ("def reward_fn(*, record): return 1.0\n", "none of the three known contracts"),
    "asynchronous": ("async def reward_fn(record): return 1.0\n", "asynchronous"),
    "a class without a signature": ("reward_fn = type\n", "reward.py"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_reward_file_that_cannot_be_used(refused_run: Callable[..., Any], name: str) -> None:
    source, error = FILES[name]
    Path("reward.py").write_bytes(source.encode("utf-8", "surrogateescape"))
    said = refused_run(ckpt="./no-such-model")
    assert error in said.error
    assert "no-such-model" not in said.error


def test_an_endless_import_ends_at_the_limit(refused_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "START_LIMIT_S", 1.0)
    Path("reward.py").write_text("while True: pass\n")
    said = refused_run(ckpt="./no-such-model")
    assert said.error == "a reward worker did not start: no reply within 1 s"
    assert "must import within 1 seconds" in said.fix


def test_a_column_that_one_row_lacks_is_named_before_the_model_is_loaded(
    refused_run: Callable[..., Any], tiny_folder: Callable[..., Path]
) -> None:
    """The tokenizer is there, the weights are not."""
    Path("tokenizer").mkdir()
    for file in tiny_folder().iterdir():
        if file.suffix != ".safetensors":
            (Path("tokenizer") / file.name).write_bytes(file.read_bytes())
    Path("data.jsonl").write_text('{"prompt": "a", "level": 1}\n{"prompt": "b"}\n')
    Path("reward.py").write_text("def reward_func(completions, level):\n    return level\n")
    said = refused_run(ckpt="tokenizer")
    assert said.error == ("reward.py:reward_func needs level, but row 1 has none; row 1 offers nothing")
    assert "give every row such a column" in said.fix


@pytest.mark.parametrize(
    "name", ["", " ", "reward.txt", "reward", "folder.py", "pipe.py", "none.py:f", ":f", "~nobody/r.py"]
)
def test_a_name_that_is_no_reward_file(refused_run: Callable[..., Any], name: str) -> None:
    Path("folder.py").mkdir()
    os.mkfifo("pipe.py")
    Path("reward.txt").write_text("def reward_fn(record): return 1.0\n")
    assert "reward_fn_path" in refused_run(reward_fn_path=name, ckpt="./no-such-model").error


def test_limits_beyond_what_the_system_counts_with_are_no_limits(tmp_path: Path) -> None:
    """The system waits at most 2^31 milliseconds, 24.8 days, and counts memory in 63 bits."""
    source = tmp_path / "reward.py"
    source.write_text("def reward_fn(record): return 0.25\n")
    endless = RewardSettings(
        reward_fn_path=str(source), reward_workers=1, reward_timeout_s=1e308, reward_memory_mb=2**63 - 1
    )
    with RewardPool(endless) as pool:
        assert pool.score(Prompt(0, "a", (2,)), [Completion((3,), (-1.0,), "b", "stop")])[0].value == 0.25


GOOD = "import math\n\ndef reward_fn(record):\n    return float(len(record.completion))\n"
SNIPPETS = st.sampled_from(
    ["(", ")", ":", "\n", "    ", "def ", "lambda", "=", "reward_fn", "*", "/", "\\", "'", "é", "\0"]
)


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(at=st.integers(0, len(GOOD)), cut=st.integers(0, 12), noise=st.lists(SNIPPETS, max_size=3).map("".join))
def test_a_good_reward_file_with_a_damaged_place_loads_or_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answered_or_refused: Callable[..., bool],
    at: int,
    cut: int,
    noise: str,
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    source = tmp_path / "damaged.py"
    source.write_text(GOOD[:at] + noise + GOOD[at + cut :])
    answered_or_refused(lambda: load_user_function(str(source), None))
