"""The real model on tasks of rising difficulty, before and after each algorithm, at equal tokens.

    python scripts/difficulty.py [--quick] [--seeds 3] [--at-once CORES]

SmolLM2-135M with the settings of recipes/difficulty; a run ends once it has written its budget of tokens, so that an
algorithm that drops groups and writes others makes fewer updates. Can be stopped at any time and started again.
Writes docs/results/difficulty. --quick makes one short run of each under runs/ and only prints the table.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from study import Metrics, Study, StudyRun, interval, table_line

RECIPE = Path("recipes/difficulty/base.toml")
ALGORITHMS: dict[str, tuple[str, ...]] = {
    "dapo": (
        *("--dapo-overlong-buffer-len", "8", "--dapo-overlong-penalty-factor", "0.5"),
        *("--dapo-max-num-gen-batches", "3", "--on-sampling-limit", "train_partial"),
    ),
    "grpo": ("--ratio", "rollout"),
    "gspo": ("--ratio", "rollout"),
    "dr_grpo": ("--ratio", "rollout"),
}
"""Name, and the settings that make it what its paper has. Three rounds at most keep DAPO near the budget."""
MOST_UPDATES = 100
"""The budget of tokens ends a run long before."""


@dataclass(frozen=True)
class Task:
    """A kind of problems."""

    name: str
    label: str
    path: str
    """Without split and rows."""

    @property
    def flags(self) -> tuple[str, ...]:
        train, heldout = (f"{self.path}&split={split}" for split in ("train", "heldout"))
        return "--dataset-path", train, "--eval-dataset-path", f"{heldout}&rows=16"


TASKS = (
    Task("sums", "sums of one digit", "task:arithmetic?digits=1"),
    Task("comparison", "the larger of two numbers of two digits", "task:comparison?digits=2"),
    Task(
        "chains",
        "chains of two or three terms (reasoning-gym)",
        "task:reasoning_gym/chain_sum?min_terms=2&max_terms=3&min_digits=1&max_digits=1",
    ),
    Task("word-problems", "word problems of one step", "task:word_problem?steps=1"),
    Task("two-digits", "sums of two digits", "task:arithmetic?digits=2"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, 2,000 tokens; writes no results")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="runs side by side (one per core)")
    arguments = parser.parse_args()
    scratch = Path("runs/difficulty-quick" if arguments.quick else "runs/difficulty")
    budget = ("--max-rollout-tokens", "2000") if arguments.quick else ()
    study = Study(
        [
            StudyRun(
                f"{task.name}/{algorithm}",
                seed,
                RECIPE,
                MOST_UPDATES,
                (*task.flags, "--algo", algorithm, *flags, *budget),
            )
            for seed in range(1, (1 if arguments.quick else arguments.seeds) + 1)
            for task in TASKS
            for algorithm, flags in ALGORITHMS.items()
        ],
        scratch / "runs",
        scratch / "results" if arguments.quick else Path("docs/results/difficulty"),
    )
    study.make(arguments.at_once)
    text = report(study)
    print(text)
    if not arguments.quick:
        (study.results / "README.md").write_text(text, encoding="utf-8")


def report(study: Study) -> str:
    """The table in Markdown."""
    head = ["", "before", *ALGORITHMS]
    rows = [[task.label, *_cells(study, task)] for task in TASKS]
    seeds = len({run.seed for run in study.runs})
    return "\n".join(
        [
            "# SmolLM2-135M on tasks of rising difficulty",
            "",
            f"Made by `make difficulty`: held-out accuracy, {seeds} seeds, equally many tokens written by each "
            "algorithm, with 95% intervals of the mean over seeds (Student's t); then the updates that it made, and "
            "the thousands of tokens that it wrote.",
            "",
            *(table_line(*cells) for cells in [head, ["---"] * len(head), *rows]),
            "",
        ]
    )


def _cells(study: Study, task: Task) -> list[str]:
    runs = {algorithm: study.metrics(f"{task.name}/{algorithm}") for algorithm in ALGORITHMS}
    before = mean(lines[0]["heldout_accuracy"] for of_one in runs.values() for lines in of_one)
    return [f"{before:.1%}", *(_after(of_one) for of_one in runs.values())]


def _after(runs: list[Metrics]) -> str:
    final = [next(line["heldout_accuracy"] for line in reversed(lines) if "heldout_accuracy" in line) for lines in runs]
    updates = mean(max(line["step"] for line in lines) for lines in runs)
    tokens = mean(sum(line.get("rollout_tokens") or 0 for line in lines) for lines in runs)
    return f"{interval(final, bounds=(0, 1))}; {updates:.0f}; {tokens / 1000:.1f}"


if __name__ == "__main__":
    main()
