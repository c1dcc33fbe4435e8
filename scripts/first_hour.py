"""A newcomer's first hour: runs every command of docs/first_hour.md and fails when an answer has changed.

    python scripts/first_hour.py            compare, some minutes on two cores
    python scripts/first_hour.py --renew    write the document anew

Numbers of a run differ between machines: where a line depends on them, only its words are compared.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).parents[1] / "docs" / "first_hour.md"


def sum_row(a: int, b: int) -> str:
    messages = [{"role": "user", "content": f"What is {a}+{b}? Reply with only the number."}]
    return json.dumps({"prompt": messages, "answer": str(a + b)})


FILES = {
    "sums.jsonl": "".join(sum_row(a, b) + "\n" for a in range(1, 6) for b in range(1, 5)),
    "reward.py": "def reward_fn(record):\n    return float(record.completion.strip(' .').endswith(record.answer))\n",
}
HEADER = """# The first hour

What a newcomer types, and what the program answers. `scripts/first_hour.py` runs every command below in an empty folder
and fails when an answer has changed; `--renew` writes this page. The folder holds twenty sums and a reward:

    $ head -1 sums.jsonl
    {first}
    $ cat reward.py
    {reward}
"""


@dataclass(frozen=True)
class Step:
    """A command, and why a person types it."""

    why: str
    command: str
    code: int = 0


OWN = "sums.jsonl --reward reward.py"
SMALL = f"{OWN} --n-samples 8 --batch-size 2 --max-new-tokens 16 --max-steps 2 --lr 1e-5"
STEPS = (
    Step("Which version is it, and what can it do?", "dapo --version"),
    Step("", "dapo"),
    Step("A slip of the keyboard.", "dapo trian", 2),
    Step(
        "Does the reward work?",
        "dapo check-reward --dataset-path sums.jsonl --reward reward.py --rows 1 --completion 2 --completion 3",
    ),
    Step("Habits from elsewhere.", f"dapo train {OWN} --num-generations 4", 2),
    Step("", f"dapo train {OWN} --beta 0.04", 2),
    Step("", "dapo train actor_rollout_ref.rollout.n=4 data.train_files=sums.jsonl", 2),
    Step("A value that cannot be.", f"dapo train {OWN} --n-samples four", 2),
    Step("", "dapo train sums.jsonl --reward exact_numbr", 2),
    Step("A file that is not there.", "dapo train sum.jsonl --reward reward.py", 2),
    Step("What would the model see, and how long would it take?", f"dapo train {SMALL} --dry-run"),
    Step("Then the run itself.", f"dapo train {SMALL} --save-path runs/first"),
    Step("On with it, as the last line says.", "dapo train --resume runs/first --max-steps 3"),
    Step(
        "How good is it now?",
        "dapo eval --ckpt runs/frist --dataset-path sums.jsonl --reward math",
        2,
    ),
    Step("", "dapo eval --ckpt runs/first --dataset-path sums.jsonl --reward exact_number --n 2 --max-new-tokens 16"),
    Step("The model of an earlier update, for another tool.", "dapo export runs/first@step_2 --out model"),
)
MEASURED = re.compile(
    r"(update \d+/|one update here|the whole run|\d+ of \d+ groups| *-> | *\d+ +\d/\d"
    r"|[a-z]+@\d|reward  |length  |truncated  )"
)
"""Begins a line that holds what a run measured or wrote: of it only the beginning is compared."""
SIGN_OF_LIFE = re.compile(r"(update \d+/\d+ +collecting|training|evaluating): |\d+ of \d+ answers, ")
"""A line that appears only where the machine is slow; left out."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--renew", action="store_true", help="write the document")
    renew = parser.parse_args().renew
    with tempfile.TemporaryDirectory() as place:
        for name, text in FILES.items():
            (Path(place) / name).write_text(text)
        parts = [HEADER.format(first=FILES["sums.jsonl"].splitlines()[0], reward=indented(FILES["reward.py"]))]
        for step in STEPS:
            parts.append(told(step, place))
    page = "\n".join(parts)
    if renew:
        DOCUMENT.write_text(page, encoding="utf-8")
        return 0
    before, now = (words(text) for text in (DOCUMENT.read_text(encoding="utf-8"), page))
    changes = list(difflib.unified_diff(before, now, "docs/first_hour.md", "now", lineterm=""))
    print("\n".join(changes) if changes else f"{len(STEPS)} answers are as they were")
    return 1 if changes else 0


def told(step: Step, place: str) -> str:
    """The command and its answer, as the document has them. Exits when the command ends in another way."""
    environment = {
        **os.environ,
        "COLUMNS": "100",
        "TERM": "dumb",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(DOCUMENT.parents[1] / "src"),
    }
    command = step.command.replace("dapo", f"{sys.executable} -m dapo.cli.main", 1)
    done = subprocess.run(
        command.split(), cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    print(f"{step.command}: {done.returncode}", file=sys.stderr)
    if done.returncode != step.code:
        sys.exit(f"{step.command} ended with {done.returncode}, not {step.code}:\n{done.stdout}")
    why = f"{step.why}\n\n" if step.why else ""
    return f"{why}    $ {step.command}\n    {indented(done.stdout)}\n"


def indented(text: str) -> str:
    lines = [line for line in text.rstrip().splitlines() if not SIGN_OF_LIFE.match(line)]
    return "\n".join(f"    {line}".rstrip() for line in lines).strip()


def words(page: str) -> list[str]:
    """The lines without what differs between machines."""
    found = [(line, MEASURED.match(line.removeprefix("    "))) for line in page.splitlines()]
    return [re.sub(r"\d+", "#", measured[0]) if measured else line for line, measured in found]


if __name__ == "__main__":
    sys.exit(main())
