"""Draw the curves of one run, or of several compared, as PNG and SVG."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR", help="run folders")
    parser.add_argument("--out", type=Path, default=Path("curves"), help="where to write: OUT.png and OUT.svg")


def run(arguments: argparse.Namespace) -> int:
    from dapo.dashboard.plots import plot_runs

    for path in plot_runs(arguments.runs, arguments.out):
        print(path)
    return 0
