"""docs/first_hour.md is what the program really answers."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts/first_hour.py"


def test_the_page_has_every_command_of_the_script_in_its_order() -> None:
    page = (ROOT / "docs/first_hour.md").read_text(encoding="utf-8")
    shown = [line.removeprefix("    $ ") for line in page.splitlines() if line.startswith("    $ dapo")]
    assert shown == [step.command for step in runpy.run_path(str(SCRIPT))["STEPS"]]


def test_what_differs_between_machines_is_not_compared() -> None:
    words = runpy.run_path(str(SCRIPT))["words"]
    page = "    update 1/2  reward 0.1\n    -> 'a'\n    ended after 2"
    assert words(page) == [
        "update #/",
        "-> ",
        "    ended after 2",
    ]


@pytest.mark.slow
def test_every_answer_is_as_the_page_has_it() -> None:
    subprocess.run([sys.executable, str(SCRIPT)], check=True)
