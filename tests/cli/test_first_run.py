"""`dapo train DATA --reward REWARD`: what is shown before the first update, and the dry run that ends there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dapo.cli import train
from dapo.cli.main import main
from dapo.config import load_config

REWARD = "def reward_fn(record):\n    return float(record.metadata['sample_index'])\n"
QUICK = ["--reward", "reward.py", "--reward-workers", "1", "--train-devices", "cpu", "--n-samples", "2"]
SHORT = [*QUICK, "--max-new-tokens", "3", "--batch-size", "2"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[..., Path]) -> Path:
    """A folder with data and a reward; the bundled model is the tiny one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "DEFAULT_MODEL", str(tiny_folder()))
    rows = [f'{{"prompt": "{letter}\\n", "answer": "{letter * 400}"}}\n' for letter in "abcd"]
    Path("data.jsonl").write_text("".join(rows))
    Path("reward.py").write_text(REWARD)
    return tmp_path


def test_data_and_reward_are_enough(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The data without a flag, the reward a file, the model the bundled one."""
    assert main(["train", "data.jsonl", *SHORT, "--save-path", "out"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"no --ckpt is given: taking the bundled model {train.DEFAULT_MODEL}\n")
    config = Path("out/config.toml").read_text()
    assert 'dataset_path = "data.jsonl"\n' in config
    assert 'reward_fn_path = "reward.py"\n' in config


def test_three_prompts_and_a_graded_answer_are_shown_before_the_first_update(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "data.jsonl", *SHORT, "--save-path", "out"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("the first prompts as the model reads them:")
    answer = f"  (answer: '{'a' * 150} ... {'a' * 150}')"
    assert lines[start + 1] == r"  'a\n'" + answer
    assert [line[:7] for line in lines[start + 2 : start + 4]] == [r"  'b\n'", r"  'c\n'"]
    graded = lines.index("an answer and its reward:")
    assert graded == start + 4
    assert lines[graded + 2].startswith("  -> '")
    assert ", reward 1" in lines[graded + 2]
    assert graded < next(number for number, line in enumerate(lines) if line.startswith("update 1"))


def test_a_run_that_goes_on_shows_neither(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", "data.jsonl", *SHORT, "--save-path", "out", "--max-steps", "1"])
    capsys.readouterr()
    assert main(["train", "--resume", "out", "--max-steps", "2"]) == 0
    out = capsys.readouterr().out
    assert "as the model reads them" not in out
    assert "an answer and its reward" not in out


def test_a_dry_run_shows_them_and_what_the_run_would_take_and_leaves_nothing(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in place.iterdir())
    assert main(["train", "data.jsonl", *SHORT, "--save-path", "out", "--max-steps", "6", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  run folder  out" in lines
    assert "the first prompts as the model reads them:" in lines
    assert "an answer and its reward:" in lines
    assert lines[-3].startswith("one update here: ")
    assert " to write 4 answers (" in lines[-3]
    assert lines[-2] == "2 of 2 groups disagree"
    assert lines[-1].startswith("the whole run: 6 updates, about ")
    assert lines[-1].endswith(" GiB of memory")
    assert sorted(path.name for path in place.iterdir() if path.name != "__pycache__") == before


def test_a_dry_run_finds_what_a_run_would_refuse(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").mkdir()
    Path("out/config.toml").write_text("")
    assert main(["train", "data.jsonl", *SHORT, "--save-path", "out", "--dry-run"]) == 2
    assert "--save-path out already holds a run" in capsys.readouterr().err
    assert main(["train", "--resume", "out", "--dry-run"]) == 2
    assert capsys.readouterr().err.startswith("error: --dry-run is given with --resume, whose run is known\n")


def test_data_given_twice_are_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "data.jsonl", "--dataset-path", "other.jsonl"]) == 2
    assert capsys.readouterr().err == (
        "error: the data are given twice: data.jsonl and --dataset-path other.jsonl\n  fix: leave one of them out\n"
    )


@pytest.mark.parametrize("word", ["task:arithmetic?digits=1", "owner/rows", "rows.parquet", "folder"])
def test_what_is_no_recipe_is_data(place: Path, word: str) -> None:
    Path("folder").mkdir()
    flags = {"ckpt": "m"}
    assert train.read_positional(word, flags) == (None, [])
    assert flags == {"ckpt": "m", "dataset_path": word}


def test_a_clip_is_warned_of_only_where_a_person_set_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2 groups of 2 answers make one optimizer step of up to 16."""
    assert main(["train", "data.jsonl", *SHORT, "--save-path", "one"]) == 0
    out = capsys.readouterr().out
    assert "warning" not in out
    assert "  update      2 groups of 2, 1 optimizer step\n" in out
    assert main(["train", "data.jsonl", *SHORT, "--save-path", "two", "--dapo-clip-eps-high", "0.3"]) == 0
    assert (
        "warning: dapo_clip_eps_high cannot act: each update is one optimizer step, "
        "taken where every ratio is still 1; lower mini_bs or gradient_accumulation_steps to make more\n"
        in capsys.readouterr().out
    )


def test_a_file_is_taken_wherever_a_reward_is_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-reward", "--reward", "reward.py:reward_fn", "--dataset-path", "data.jsonl", "--rows", "1"]) == 0
    loaded = load_config(None, {"ckpt": "m", "dataset_path": "d", "reward": "own/reward.py"}).reward
    assert (loaded.reward, loaded.reward_fn_path) == (None, "own/reward.py")
    capsys.readouterr()
    both = ["--reward", "reward.py", "--reward-fn-path", "other.py"]
    assert main(["check-reward", *both, "--dataset-path", "data.jsonl"]) == 2
    assert "a run has one reward" in capsys.readouterr().err
