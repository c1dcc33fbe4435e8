"""The reward `math` and Math-Verify alone on the table of tests/rewards/math_table.tsv, as docs/math_answers.md.

    python scripts/math_agreement.py        writes the page anew, in about a minute

Math-Verify alone is `verify(parse(reference), parse(answer))` with its defaults; each text stands in a box, as a
completion has it.
"""

from __future__ import annotations

import csv
import hashlib
import logging
from collections import Counter
from pathlib import Path

from math_verify import parse, verify

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests/rewards/math_table.tsv"
PAGE = ROOT / "docs/math_answers.md"

Row = dict[str, str]


def main() -> None:
    logging.disable()  # Math-Verify reports every time limit
    rows = read_table()
    alone = ["1" if math_verify_says_same(row) else "0" for row in rows]
    PAGE.write_text(page(rows, alone), encoding="utf-8")
    agree = sum(row["verdict"] == one for row, one in zip(rows, alone, strict=True))
    print(f"{PAGE.name}: {len(rows)} rows, {agree} agree")


def read_table() -> list[Row]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def completion(answer: str) -> str:
    """The text that a row stands for: a whole one behind "text:", with \\n for a new line, else the inside of a box."""
    return answer[5:].replace("\\n", "\n") if answer.startswith("text:") else f"\\boxed{{{answer}}}"


def math_verify_says_same(row: Row) -> bool:
    return bool(verify(parse(completion(row["reference"])), parse(completion(row["answer"]))))


def digest() -> str:
    """What tells this table from another."""
    return hashlib.sha256(TABLE.read_bytes()).hexdigest()[:12]


def page(rows: list[Row], alone: list[str]) -> str:
    kinds = Counter((row["verdict"], one) for row, one in zip(rows, alone, strict=True))
    lines = [
        "# The reward `math` beside Math-Verify alone",
        "",
        f"`tests/rewards/math_table.tsv` has {len(rows)} references and answers, each with a verdict thought through",
        "by hand from the rules in [rewards.md](rewards.md); the reward `math` gives all of these verdicts, which a",
        f"test holds. Math-Verify alone gives {kinds['1', '1'] + kinds['0', '0']} of them.",
        "",
        "Math-Verify 0.9.0 alone, `verify(parse(reference), parse(answer))` at its defaults with both texts in a box:",
        "",
        "| The verdict | Math-Verify says right | Math-Verify says wrong |",
        "|---|---|---|",
        f"| right | {kinds['1', '1']} | {kinds['1', '0']} |",
        f"| wrong | {kinds['0', '1']} | {kinds['0', '0']} |",
        "",
        *_differences("Wrong answers that Math-Verify alone takes for right", rows, alone, "0"),
        *_differences("Right answers that Math-Verify alone takes for wrong", rows, alone, "1"),
        f"Made by `scripts/math_agreement.py` from the table {digest()}.",
        "",
    ]
    return "\n".join(lines)


def _differences(title: str, rows: list[Row], alone: list[str], verdict: str) -> list[str]:
    lines = [f"## {title}", "", "| Reference | Answer | Why |", "|---|---|---|"]
    for row, one in zip(rows, alone, strict=True):
        if row["verdict"] == verdict != one:
            lines.append(f"| {_cell(row['reference'])} | {_cell(row['answer'])} | {row['why']} |")
    return [*lines, ""]


def _cell(text: str) -> str:
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}".replace("|", "\\|") if text.strip() else "(blank)"


if __name__ == "__main__":
    main()
