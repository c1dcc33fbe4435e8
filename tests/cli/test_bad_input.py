"""Bad input: `error:` and `fix:`, exit code 2, no traceback, no run folder, and before the model is loaded.

The model named here does not exist, so that an error about anything else shows that it came first.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dapo.cli.main import main

REWARD = "def reward_fn(record):\n    return 1.0\n"


@pytest.fixture
def dapo_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[str, str]]:
    """Runs `dapo train` on a good file of prompts and a good reward, with flags added; returns error and fix."""
    monkeypatch.chdir(tmp_path)
    Path("data.jsonl").write_text('{"prompt": "a", "answer": "1"}\n{"prompt": "b", "answer": "2"}\n')
    Path("reward.py").write_text(REWARD)

    def run(*flags: str, ckpt: str = "./no-such-model") -> tuple[str, str]:
        given = dict(zip(flags[::2], flags[1::2], strict=True))
        base = {"--ckpt": ckpt, "--dataset-path": "data.jsonl", "--save-path": "out", "--reward-workers": "1"}
        if "--reward" not in given:
            base["--reward-fn-path"] = "reward.py"
        words = [word for pair in {**base, **given}.items() for word in pair]
        capsys.readouterr()
        assert main(["train", *words]) == 2
        _, err = capsys.readouterr()
        lines = err.splitlines()
        assert "Traceback" not in err
        assert len(lines) == 2
        assert lines[0].startswith("error: ")
        assert lines[1].startswith("  fix: ")
        assert not Path("out").exists()
        assert not Path("runs").exists()
        return lines[0].removeprefix("error: "), lines[1].removeprefix("  fix: ")

    return run


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--temperature", "0"), "temperature is 0.0"),
        (("--temperature", "-1"), "temperature is -1.0"),
        (("--temperature", "nan"), "temperature is nan"),
        (("--n-samples", "1"), "n_samples is 1"),
        (("--dapo-overlong-buffer-len", "-1"), "dapo_overlong_buffer_len is -1"),
        (("--dapo-overlong-buffer-len", "256"), "dapo_overlong_buffer_len is 256 but max_new_tokens is 256"),
        (("--dapo-clip-eps-high", "0.1"), "dapo_clip_eps_high is 0.1 but dapo_clip_eps_low is 0.2"),
        (("--top-p", "0.9"), "top_p is 0.9"),
        (("--top-k", "5"), "top_k is 5"),
        (("--world-size", "2"), "world_size is 2"),
        (("--tp-size", "2"), "tp_size is 2"),
        (("--train-devices", "mlx"), "train_devices is mlx"),
        (("--agent-fn", "agent.py"), "agent_fn is 'agent.py'"),
        (("--epochs", "one"), "epochs is 'one'"),
        (("--algo", "ppo"), "algo is 'ppo'"),
        (("--reward", "maths", "--ckpt", "m"), "reward is 'maths'"),
    ],
)
def test_a_bad_setting(dapo_train: Callable[..., tuple[str, str]], flags: tuple[str, ...], error: str) -> None:
    assert dapo_train(*flags)[0].startswith(error)


def test_greedy_decoding_under_dapo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--algo", "dapo", "--greedy", "--ckpt", "m", "--dataset-path", "d", "--reward", "math"]) == 2
    assert capsys.readouterr().err.startswith("error: greedy is on")


@pytest.mark.parametrize("text", ["[rollout]\nn_sample = 4\n", "n_sample = 4\n"])
def test_an_unknown_key_of_a_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(text)
    assert main(["train", str(recipe)]) == 2
    assert capsys.readouterr().err == "error: unknown setting n_sample\n  fix: did you mean n_samples?\n"


def test_a_missing_data_file(dapo_train: Callable[..., tuple[str, str]]) -> None:
    assert "none.jsonl" in dapo_train("--dataset-path", "none.jsonl")[0]


def test_an_empty_data_file(dapo_train: Callable[..., tuple[str, str]], tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    assert dapo_train("--dataset-path", "empty.jsonl")[0] == "empty.jsonl is empty"


def test_a_row_without_a_prompt_is_named_by_its_line(
    dapo_train: Callable[..., tuple[str, str]], tmp_path: Path
) -> None:
    rows = [{"prompt": "a"}, {"question": "b"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    error, _ = dapo_train("--dataset-path", "rows.jsonl")
    assert "rows.jsonl" in error
    assert "line 2" in error
    assert "prompt" in error


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (None, "bad.py, which is not a file"),
        ("import nothing_of_this_name\n", "does not import"),
        ("def broken(:\n", "does not import"),
        ("VALUE = 1\n", "no"),
    ],
)
def test_a_reward_file_that_cannot_be_used(
    dapo_train: Callable[..., tuple[str, str]], tmp_path: Path, source: str | None, error: str
) -> None:
    if source is not None:
        (tmp_path / "bad.py").write_text(source)
    message, _ = dapo_train("--reward-fn-path", "bad.py")
    assert "bad.py" in message
    assert error in message


def test_a_missing_function_of_a_reward_file_names_the_nearest(dapo_train: Callable[..., tuple[str, str]]) -> None:
    error, fix = dapo_train("--reward-fn-path", "reward.py:reward_fun")
    assert "no function 'reward_fun'" in error
    assert "reward.py:reward_fn?" in fix


def test_a_missing_model(dapo_train: Callable[..., tuple[str, str]]) -> None:
    assert "./no-such-model" in dapo_train()[0]


def test_nothing_left_after_dropping_long_prompts_b71(
    dapo_train: Callable[..., tuple[str, str]], tiny_folder: Callable[..., Path], tmp_path: Path
) -> None:
    """B71: rows read, rows dropped and the limit are in the message: two prompts of 3 letters over a limit of 2."""
    (tmp_path / "long.jsonl").write_text('{"prompt": "abc"}\n{"prompt": "def"}\n')
    error, fix = dapo_train("--dataset-path", "long.jsonl", "--max-prompt-tokens", "2", ckpt=str(tiny_folder()))
    assert "2 rows" in error
    assert "longer than max_prompt_tokens 2" in error
    assert "3 tokens" in error
    assert fix == "raise --max-prompt-tokens to 3 or more"


def test_a_run_folder_that_holds_a_run_already(dapo_train: Callable[..., tuple[str, str]], tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.toml").write_text("")
    assert "already holds a run" in dapo_train("--save-path", "old")[0]
