"""A real evaluation of a tiny model, as `dapo eval` makes it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dapo.cli.eval import eval_config
from dapo.evaluation.evaluate import Evaluated, evaluate
from dapo.evaluation.progress import EvalProgress
from dapo.evaluation.store import Answer, AnsweredRow


@dataclass(frozen=True)
class Said:
    """An evaluation and what it printed."""

    done: Evaluated
    output: str

    @property
    def folder(self) -> Path:
        return self.done.results.parent

    @property
    def lines(self) -> list[dict[str, Any]]:
        """answers.jsonl, in the order of the rows."""
        lines = (self.folder / "answers.jsonl").read_text().splitlines()
        return sorted(map(json.loads, lines), key=lambda line: line["step"])


@pytest.fixture
def run_eval(tmp_path: Path) -> Callable[..., Said]:
    """Evaluates a model folder on rows, by the settings of the command line."""

    def run(model: Path, rows: Sequence[Mapping[str, Any]] = (), **flags: Any) -> Said:
        data = tmp_path / "data.jsonl"
        if rows:
            data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        stream = io.StringIO()
        own = {} if "reward_fn_path" in flags else {"reward": "exact_number"}
        settings = {
            "ckpt": str(model),
            "dataset_path": str(data),
            "save_path": str(tmp_path / "eval"),
            "device": "cpu",
            "reward_workers": 1,
            "n": 4,
            "max_new_tokens": 6,
            **own,
            **flags,
        }
        with EvalProgress(stream) as progress:
            done = evaluate(eval_config(settings), progress)
        return Said(done, stream.getvalue())

    return run


@pytest.fixture
def knows_seven(table_model: Callable[..., Any], always: Callable[..., Any]) -> Path:
    """A model folder: after `a` it says 7, after `b` it says 8, and ends."""
    return Path(table_model(always("7", start="a") + always("8", start="b")).module.name_or_path)


@pytest.fixture
def row() -> Callable[..., AnsweredRow]:
    """An answered row. answers: `7+` is a right answer that states 7, `8` a wrong one, `-` one that states nothing."""

    def make(draw: int, answers: str, *, prompt: str | None = None, reference: str = "7", **each: Any) -> AnsweredRow:
        made = tuple(
            Answer(
                **{
                    "length": 10,
                    "truncated": False,
                    "reward": float(word.endswith("+")),
                    "score": float(word.endswith("+")),
                    "vote": None if word == "-" else word.rstrip("+"),
                    **each,
                }
            )
            for word in answers.split()
        )
        text = f"problem {draw}" if prompt is None else prompt
        return AnsweredRow(draw, draw, text, text, reference, made, 0)

    return make
