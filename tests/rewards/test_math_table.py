"""The reward `math` on a table of references and answers. Every verdict is thought through by hand."""

import csv
import hashlib
from pathlib import Path

import pytest

from dapo.rewards.math_answers import math_score

TABLE = Path(__file__).with_name("math_table.tsv")
PAGE = Path(__file__).parents[2] / "docs/math_answers.md"

with TABLE.open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['reference']} | {row['answer']}")
def test_every_answer_of_the_table_gets_its_verdict(row: dict[str, str]) -> None:
    """An answer in the table stands in a box; one that begins with "text:" is a whole text, with \\n for a new line."""
    answer = row["answer"]
    text = answer[5:].replace("\\n", "\n") if answer.startswith("text:") else f"\\boxed{{{answer}}}"
    assert math_score(text, row["reference"]).value == float(row["verdict"]), row["why"]


def test_the_published_comparison_with_math_verify_is_of_this_table() -> None:
    """Otherwise run scripts/math_agreement.py."""
    assert f"from the table {hashlib.sha256(TABLE.read_bytes()).hexdigest()[:12]}" in PAGE.read_text(encoding="utf-8")


def test_no_row_of_the_table_stands_twice() -> None:
    pairs = [(row["reference"], row["answer"]) for row in ROWS]
    assert len(set(pairs)) == len(pairs) >= 400
