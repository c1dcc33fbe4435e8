"""Rows far down in the data: the ten-thousandth is named as the first would be, before a model is loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

COUNT = 10_000
LAST: dict[str, tuple[dict[str, Any] | str, str]] = {
    "no prompt": ({"question": "x"}, "line 10000 has no prompt"),
    "a null prompt": ({"prompt": None}, "line 10000: prompt is null"),
    "a number as prompt": ({"prompt": 7}, "line 10000: prompt is of type int"),
    "an empty prompt": ({"prompt": " "}, "line 10000 has an empty prompt"),
    "a message without content": ({"prompt": [{"role": "user"}]}, "line 10000: message 1 of the prompt has no content"),
    "half a line": ('{"prompt": "a', "line 10000 is not valid JSON"),
    "a list": ("[1]", "line 10000 is a list, not an object"),
}


@pytest.mark.parametrize("name", LAST)
def test_the_ten_thousandth_line_is_named(workplace: Path, refused_run: Callable[..., Any], name: str) -> None:
    last, error = LAST[name]
    text = last if isinstance(last, str) else json.dumps(last)
    Path("data.jsonl").write_text('{"prompt": "a"}\n' * (COUNT - 1) + text + "\n")
    assert refused_run(ckpt="./no-such-model").error.startswith(f"data.jsonl {error}")


def test_a_column_that_is_null_in_the_ten_thousandth_row(workplace: Path, refused_run: Callable[..., Any]) -> None:
    pq.write_table(pa.table({"prompt": ["a"] * (COUNT - 1) + [None]}), "data.parquet")
    said = refused_run(dataset_path="data.parquet", ckpt="./no-such-model")
    assert said.error == "data.parquet row 10000: prompt is null"


def test_an_answer_that_is_no_number_in_the_ten_thousandth_line(
    workplace: Path, refused_run: Callable[..., Any], tiny_folder: Callable[..., Path]
) -> None:
    """Rows count from 0 where a reward names them: they are the prompt_index that it is given."""
    rows = '{"prompt": "a", "answer": "1"}\n' * (COUNT - 1) + '{"prompt": "b", "answer": "one"}\n'
    Path("data.jsonl").write_text(rows)
    said = refused_run(reward="exact_number", reward_fn_path=None)
    assert said.error.startswith("row 9999: ")
    assert "'one'" in said.error


def test_a_loader_whose_ten_thousandth_row_is_none(workplace: Path, refused_run: Callable[..., Any]) -> None:
    Path("rows.py").write_text(f"def load_rows():\n    return [{{'prompt': 'a'}}] * {COUNT - 1} + [None]\n")
    said = refused_run(dataset_loader_fn="rows.py", dataset_path=None, ckpt="./no-such-model")
    assert said.error == "rows.py row 10000 is of type NoneType, not a mapping"
