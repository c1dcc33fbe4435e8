"""A template that prints the date prints that of the start of the run, on whatever day the run goes on."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from dapo.cli.eval import eval_config
from dapo.coordination import parts
from dapo.errors import ConfigError
from dapo.evaluation import evaluate
from dapo.evaluation.progress import EvalProgress

FIRST, NEXT = datetime(2025, 1, 31, 23, 59, 30, 500), datetime(2025, 2, 1, 0, 10)
DATED = (
    "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y, %H:%M') %}{% endif %}"
    "{{ date_string }}{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}"
)


@pytest.fixture
def dated_model(tiny_folder: Callable[..., Path], tmp_path: Path) -> Path:
    """The tiny Llama with a template as that of Llama 3.2."""
    folder = Path(shutil.copytree(tiny_folder(tie_word_embeddings=True), tmp_path / "dated"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = DATED
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    """Sets the day on which commands are given."""

    def put(now: datetime) -> None:
        class Clock(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> datetime:
                return now

        for module in (parts, evaluate):
            monkeypatch.setattr(module, "datetime", Clock)

    return put


def chats(path: Path) -> None:
    rows = [{"prompt": [{"role": "user", "content": f"{n} plus {n} is"}], "answer": n} for n in range(12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(run: Path) -> list[str]:
    """The text of every prompt that was answered."""
    return [json.loads(line)["prompt"] for line in (run / "rollouts.jsonl").read_text().splitlines()]


def test_a_run_goes_on_the_next_day_with_the_date_of_its_start(
    tiny_runs: Any, dated_model: Path, on: Any, outcome_of: Any
) -> None:
    chats(tiny_runs.root / "data.jsonl")
    tiny_runs.settings["ckpt"] = str(dated_model)
    on(FIRST)
    unbroken = outcome_of(tiny_runs.start("unbroken", max_steps=2))
    tiny_runs.start("run", max_steps=2, stop_after=1)
    on(NEXT)
    run = tiny_runs.resume("run", keep_checkpoints=1)
    assert outcome_of(run) == unbroken
    assert all(text.startswith("31 Jan 2025, 23:59[user]") for text in read(run))
    assert (run / "started.txt").read_text() == "2025-01-31T23:59:30\n"


def test_a_run_that_has_no_checkpoint_yet_starts_again_with_its_own_date(
    tiny_runs: Any, dated_model: Path, on: Any
) -> None:
    chats(tiny_runs.root / "data.jsonl")
    tiny_runs.settings["ckpt"] = str(dated_model)
    on(FIRST)
    run = tiny_runs.start("run", max_steps=1)
    for path in (run / "checkpoints").iterdir():
        path.rename(tiny_runs.root / path.name)
    on(NEXT)
    assert all(text.startswith("31 Jan 2025") for text in read(tiny_runs.resume("run")))


def test_a_run_of_before_dates_were_written_down_goes_on(tiny_runs: Any, outcome_of: Any) -> None:
    unbroken = outcome_of(tiny_runs.start("unbroken", max_steps=2))
    run = tiny_runs.start("run", max_steps=2, stop_after=1)
    (run / "started.txt").unlink()
    assert outcome_of(tiny_runs.resume("run", keep_checkpoints=1)) == unbroken


def test_a_damaged_date_is_named_with_the_fix(tiny_runs: Any) -> None:
    run = tiny_runs.start("run", max_steps=2, stop_after=1)
    (run / "started.txt").write_text("yesterday")
    with pytest.raises(ConfigError, match=r"started\.txt cannot be read: .*yesterday.*\n  fix: write the date there"):
        tiny_runs.resume("run")


def test_an_evaluation_finds_its_answers_on_the_next_day(
    tiny_runs: Any, dated_model: Path, on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny_runs.root)  # it finds its folder by itself, too
    chats(Path("data.jsonl"))
    flags = {"ckpt": str(dated_model), "dataset_path": "data.jsonl", "reward": "exact_number", "device": "cpu"}
    config = eval_config({**flags, "n": 1, "max_new_tokens": 3, "reward_workers": 1})
    said = io.StringIO()
    folders = []
    for now in (FIRST, NEXT):
        on(now)
        with EvalProgress(said) as progress:
            folders.append(evaluate.evaluate(config, progress).results.parent)
    assert folders[0] == folders[1]
    assert "12 of 12 rows are answered already" in said.getvalue()
    lines = (folders[0] / "answers.jsonl").read_text().splitlines()
    assert len(lines) == 12
    assert all(json.loads(line)["prompt"].startswith("31 Jan 2025, 23:59[user]") for line in lines)
