"""Show the groups of an update: prompt, answers side by side, rewards and advantages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dapo.errors import DapoError

if TYPE_CHECKING:
    from dapo.dashboard.show import Pieces
    from dapo.tracking.run_folder import RunFolder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from pathlib import Path

    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="run folder")
    parser.add_argument("--step", type=int, required=True, metavar="N", help="which update, from 1")
    parser.add_argument("--group", type=int, metavar="G", help="only the group of this number (default: all)")
    parser.add_argument(
        "--colour",
        choices=("ratio", "probability"),
        help="what a token's colour shows in a terminal (default: its ratio where that is recorded)",
    )


def run(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from dapo.dashboard.show import clipped, colouring_of, group_view, groups_of_step, legend
    from dapo.tracking.run_folder import RunFolder

    folder = RunFolder.open(arguments.run)
    lines = groups_of_step(folder.rollouts, arguments.step, arguments.group)
    colouring = colouring_of(lines, arguments.colour)
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # an answer may hold what no terminal has
    console = Console(file=sys.stdout, highlight=False)
    coloured = console.color_system is not None and not console.no_color
    # Without colours and clips the text alone says everything, and no tokenizer is needed.
    pieces = _pieces(folder) if coloured or clipped(lines) else None
    for line in lines:
        console.print(group_view(line, pieces, console.width, colouring))
        console.print()
    if pieces is not None:
        console.print(legend(lines, colouring if coloured else None))
    return 0


def _pieces(folder: RunFolder) -> Pieces | None:
    """Splits answers into tokens with the tokenizer of the run; None, said aloud, when it cannot be loaded."""
    from dapo.checkpoints.model_of_run import locate_model
    from dapo.config import load_config
    from dapo.dashboard.show import token_pieces
    from dapo.models.loading import load_tokenizer

    try:
        settings = load_config(None, {}, saved=folder.config).model
        tokenizer = load_tokenizer(locate_model(settings), settings)
    except DapoError as error:
        print(f"warning: tokens are neither coloured nor marked: {error.problem}", file=sys.stderr)
        return None

    def decode(tokens: Sequence[int]) -> str:
        return str(tokenizer.decode(list(tokens), skip_special_tokens=False))

    return lambda tokens: token_pieces(decode, tokens)
