"""What each technique of DAPO adds to GRPO: the paper's Table 1 in miniature, with seeds and error bars.

    python scripts/ablation.py [--quick] [--seeds 5] [--at-once CORES]

A tiny transformer learns from worked solutions until it solves some of the problems (`dapo new-model`, `dapo sft`);
every row then trains that model by reinforcement, with the settings of recipes/ablation and one technique more than
the row before. Can be stopped at any time and started again. Writes docs/results/ablation: settings and metrics of
every run, the table, and pictures. --quick makes two short runs of each row under runs/ and only prints the table.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean

from study import Metrics, Study, StudyRun, interval, table_line

from dapo.dashboard.plots import plot_runs

RECIPES = Path("recipes/ablation")
NEW_MODEL = Path("runs/ablation/new")
"""Random weights; made once."""
NEW_MODEL_SHAPE = ("--layers", "4", "--hidden-size", "128", "--heads", "4", "--context", "256")
WARM_START = Path("runs/ablation/warmstart")
"""The model that every run begins with; its path stands in the recipes."""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    name: str
    label: str
    flags: tuple[str, ...]
    """What it changes in recipes/ablation/base.toml; all that the rows above it change included."""


HIGHER = ("--clip-eps-high", "0.28")
PUNISHED = ("--dapo-overlong-buffer-len", "16", "--dapo-overlong-penalty-factor", "0.5")
"""Half of the paper's penalty, since right and wrong are 1 and 0 here, and 1 and -1 there."""
TOKEN_MEAN = ("--loss-aggregation", "token-mean")
ROWS = (
    Row("grpo", "naive GRPO", ()),
    Row("overlong-filtering", "+ overlong filtering", ("--mask-overlong-truncated",)),
    Row("clip-higher", "+ Clip-Higher", ("--mask-overlong-truncated", *HIGHER)),
    Row("overlong-punishment", "+ soft overlong punishment (for the filtering)", (*HIGHER, *PUNISHED)),
    Row("token-level-loss", "+ token-level loss", (*HIGHER, *PUNISHED, *TOKEN_MEAN)),
    Row("dapo", "+ dynamic sampling (DAPO)", (*HIGHER, *PUNISHED, *TOKEN_MEAN, "--dynamic-sampling")),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two seeds of 10 updates, in minutes; writes no results")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="runs side by side (one per core)")
    arguments = parser.parse_args()
    seeds, updates = (2, 10) if arguments.quick else (arguments.seeds, arguments.updates)
    scratch = Path("runs/ablation-quick" if arguments.quick else "runs/ablation")
    study = Study(
        [
            StudyRun(row.name, seed, RECIPES / "base.toml", updates, row.flags)
            for seed in range(1, seeds + 1)  # so that every row has as many seeds if it is stopped early
            for row in ROWS
        ],
        scratch / "runs",
        scratch / "results" if arguments.quick else Path("docs/results/ablation"),
    )
    if study.unfinished:
        make_start()
    study.make(arguments.at_once)
    text = report(study)
    print(text)
    if not arguments.quick:
        (study.results / "README.md").write_text(text, encoding="utf-8")
        draw(study)


def draw(study: Study) -> None:
    """A picture of all rows, and one for each technique: the row before it beside its own."""
    pictures = {"curves": ROWS} | {after.name: (before, after) for before, after in pairwise(ROWS)}
    for name, rows in pictures.items():
        runs = [study.result(run) for row in rows for run in study.runs if run.row == row.name]
        plot_runs(runs, study.results / name)


def make_start() -> None:
    """The model that all rows begin with, unless it is there: random weights, then worked solutions."""
    if not NEW_MODEL.exists():
        _dapo("new-model", str(NEW_MODEL), *NEW_MODEL_SHAPE)
    if not (WARM_START / "final").exists():
        _dapo("sft", str(RECIPES / "warmstart.toml"), "--resume", "auto", "--save-path", str(WARM_START))


def _dapo(*arguments: str) -> None:
    code = subprocess.run([sys.executable, "-m", "dapo.cli.main", *arguments], check=False).returncode
    if code:
        raise SystemExit(code)


def report(study: Study) -> str:
    """The tables in Markdown."""
    runs = {row.name: study.metrics(row.name) for row in ROWS}
    goal = mean(mean(late(lines, "heldout_accuracy")) for lines in runs[ROWS[0].name])
    first = [next(line["heldout_accuracy"] for line in lines if line["step"] == 0) for lines in runs[ROWS[0].name]]
    accuracy = [table_line(row.label, *_accuracies(runs[row.name], goal)) for row in ROWS]
    behaviour = [table_line(row.label, *_behaviour(runs[row.name])) for row in ROWS]
    return "\n".join(
        [
            "# What each technique adds",
            "",
            f"Made by `make ablation`: {len(runs[ROWS[0].name])} seeds, {study.runs[0].updates} updates each. Before "
            f"reinforcement the model solves {mean(first):.1%} of the held-out problems. Intervals are 95% intervals "
            "of the mean over seeds (Student's t), with two seeds their range.",
            "",
            table_line(
                "",
                "held-out accuracy, last quarter",
                "at the end",
                *(f"{what} to reach {goal:.1%}" for what in ("updates", "tokens", "seconds")),
                "seeds that reach it",
            ),
            table_line(*["---"] * 7),
            *accuracy,
            "",
            "Accuracy is measured every tenth update; the first column is the mean of those in the last quarter, where "
            f"GRPO has {goal:.1%}. That counts as reached at the first measurement that is not below; means run over "
            "the seeds that reach it. Tokens are generated ones, in thousands.",
            "",
            f"DAPO minus GRPO in the last quarter, seed by seed: {interval(_gains(runs), '+.1%')}.",
            "",
            "Means over the last quarter of the updates:",
            "",
            table_line("", *BEHAVIOUR),
            table_line(*["---"] * (1 + len(BEHAVIOUR))),
            *behaviour,
            "",
        ]
    )


BEHAVIOUR: dict[str, tuple[str, Callable[[float], str]]] = {
    "entropy": ("entropy", lambda value: f"{value:.3f}"),
    "answer length": ("response_length_mean", lambda value: f"{value:.1f}"),
    "truncated": ("truncated_share", lambda value: f"{value:.1%}"),
    "all-right groups": ("dapo_all_correct_share", lambda value: f"{value:.0%}"),
    "up-clipped tokens": ("pg_clipfrac_upper", lambda value: f"{value:.2%}"),
    "their probability": ("up_clipped_prob_mean", lambda value: f"{value:.2f}"),
}
"""Column -> metric, and how it is written."""


def late(lines: Metrics, metric: str) -> list[float]:
    """The values of the last quarter of a run."""
    return [line[metric] for line in lines[-len(lines) // 4 :] if line.get(metric) is not None]


def _accuracies(runs: Sequence[Metrics], goal: float) -> list[str]:
    measured = [late(lines, "heldout_accuracy") for lines in runs]
    reached = [costs for lines in runs if (costs := cost_to_reach(lines, goal)) is not None]
    return [
        interval([mean(values) for values in measured]),
        interval([values[-1] for values in measured]),
        *([f"{mean(values):,.0f}" for values in zip(*reached, strict=True)] or ["never"] * 3),
        f"{len(reached)} of {len(runs)}",
    ]


def cost_to_reach(lines: Metrics, goal: float) -> tuple[float, float, float] | None:
    """Updates, thousands of generated tokens and seconds until a measurement was at the goal; None if none was."""
    tokens = seconds = 0.0
    for line in lines:
        tokens += (line.get("rollout_tokens") or 0) / 1000
        seconds += line.get("seconds_total") or 0.0
        if line["step"] and (line.get("heldout_accuracy") or 0.0) >= goal:
            return line["step"], tokens, seconds
    return None


def _behaviour(runs: Sequence[Metrics]) -> list[str]:
    cells = []
    for metric, shown in BEHAVIOUR.values():
        values = [value for lines in runs for value in late(lines, metric)]
        cells.append(shown(mean(values)) if values else "-")
    return cells


def _gains(runs: Mapping[str, Sequence[Metrics]]) -> list[float]:
    """How much more accurate the last row is than the first, with the same seed."""
    first, final = ([mean(late(lines, "heldout_accuracy")) for lines in runs[row.name]] for row in (ROWS[0], ROWS[-1]))
    return [after - before for before, after in zip(first, final, strict=True)]


if __name__ == "__main__":
    main()
