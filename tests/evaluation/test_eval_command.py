"""`dapo eval` as a person types it."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from dapo.cli.eval import eval_config
from dapo.cli.main import main
from dapo.evaluation.settings import EvalSettings
from dapo.rollout.settings import Sampling

NEEDED = {"ckpt": "smollm2-135m", "dataset_path": "task:arithmetic", "reward": "exact_number"}


def test_the_command_prints_tables_and_writes_results(
    knows_seven: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "a", "answer": "7"}\n{"prompt": "b", "answer": "9"}\n')
    arguments = ["--ckpt", str(knows_seven), "--dataset-path", str(data), "--reward", "exact_number"]
    arguments += ["--n", "3", "--temperature", "1.0", "--top-p", "0.7", "--max-new-tokens", "4"]
    arguments += ["--device", "cpu", "--reward-workers", "1", "--save-path", str(tmp_path / "out")]
    assert main(["eval", *arguments]) == 0
    out = capsys.readouterr().out
    for words in ("avg@3", "pass@1", "pass@3", "maj@3", "0.500", "95% interval", "3/3", "0/3"):
        assert words in out
    assert out.splitlines()[-1] == f"results: {tmp_path / 'out' / 'results.json'}"
    assert json.loads((tmp_path / "out" / "results.json").read_text())["problems"] == 2


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"n": "0"}, "n is 0"),
        ({"n": "many"}, "n is 'many'"),
        ({"max_new_tokens": "0"}, "max_new_tokens is 0"),
        ({"temperature": "0"}, "temperature is 0.0"),
        ({"temperature": "nan"}, "temperature is nan"),
        ({"top_p": "0"}, "top_p is 0.0"),
        ({"top_p": "1.5"}, "top_p is 1.5"),
        ({"top_k": "-1"}, "top_k is -1"),
        ({"greedy": True}, "greedy is on but n is 32"),
        ({"greedy": True, "n": "1", "top_p": "0.7"}, "top_p is given but greedy is on"),
        ({"greedy": True, "n": "1", "temperature": "1"}, "temperature is given but greedy is on"),
        ({"stop_strings": [""]}, "stop_strings holds an empty string"),
        ({"right_from": "inf"}, "right_from is inf"),
        ({"seed": "-1"}, "seed is -1"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"max_num_seqs": "0"}, "max_num_seqs is 0"),
        ({"kv_cache_gb": "0"}, "kv_cache_gb is 0.0"),
        ({"reward": None}, "no reward is set"),
        ({"dataset_path": None}, "no data"),
        ({"ckpt": None}, "ckpt is not set"),
    ],
)
def test_a_setting_that_is_wrong_or_cannot_act_is_refused(
    capsys: pytest.CaptureFixture[str], flags: dict[str, object], problem: str
) -> None:
    given = {name: value for name, value in {**NEEDED, **flags}.items() if value is not None}
    arguments = []
    for name, value in given.items():
        values = value if isinstance(value, list) else [value]
        flag = f"--{name.replace('_', '-')}"
        arguments += [flag] if value is True else [f"{flag}={one}" for one in values]
    assert main(["eval", *arguments]) == 2
    error, fix = capsys.readouterr().err.splitlines()
    assert error.startswith(f"error: {problem}")
    assert fix.startswith("  fix: ")


def test_a_mistyped_flag_gets_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "--dataset", "x"]) == 2
    assert "did you mean --dataset-path?" in capsys.readouterr().err


def test_help_explains_every_setting_and_none_that_only_training_has(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["eval", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for field in fields(EvalSettings):
        assert f"--{field.name.replace('_', '-')}" in text
    assert "Answers per row of the data. (default 32)" in text
    assert "--activation-checkpointing" not in text


def test_every_sampling_setting_reaches_the_engine_under_its_name() -> None:
    chosen = {"n": 3, "max_new_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop_strings": ("x",)}
    assert eval_config({**NEEDED, **chosen}).evaluation.sampling == Sampling(**chosen)
    greedy = eval_config({**NEEDED, "greedy": True, "n": 1}).evaluation.sampling
    assert greedy.greedy
