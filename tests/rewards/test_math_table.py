"""The reward `math` on a table of references and answers. Every verdict is thought through by hand."""

import csv
from pathlib import Path

import pytest

from dapo.rewards.math_answers import math_score

with (Path(__file__).parent / "math_table.tsv").open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['reference']} | {row['answer']}")
def test_every_answer_of_the_table_gets_its_verdict(row: dict[str, str]) -> None:
    """An answer in the table stands in a box; one that begins with "text:" is a whole text, with \\n for a new line."""
    answer = row["answer"]
    text = answer[5:].replace("\\n", "\n") if answer.startswith("text:") else f"\\boxed{{{answer}}}"
    assert math_score(text, row["reference"]).value == float(row["verdict"]), row["why"]
