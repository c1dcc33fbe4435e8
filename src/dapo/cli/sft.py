"""Warm start: teach a model to write given solutions, with a recipe, flags, or both."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dapo.cli.setting_flags import add_all_settings
from dapo.cli.train import add_positional, add_resume_flags, run_loop
from dapo.coordination.sft_settings import NEVER_ACTS, SftConfig

if TYPE_CHECKING:
    from dapo.coordination.resume import Resume
    from dapo.coordination.stopping import StopRequest
    from dapo.tracking.display import Display


MOST_USED = ("ckpt", "dataset_path", "solution_key", "batch_size", "lr", "max_steps", "epochs", "save_path")
EXAMPLES = """three commands to try:
  dapo sft --ckpt smollm2-135m --dataset-path "task:addition?rows=500" --max-steps 5
  dapo sft --ckpt Qwen/Qwen2.5-0.5B --dataset-path worked.jsonl --solution-key solution --epochs 2
  dapo sft --resume auto
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag per setting, grouped by the part that owns it."""
    parser.usage = "dapo sft [recipe.toml | DATA] [--setting value ...]"
    parser.epilog = EXAMPLES
    add_positional(parser)
    tables = {table: SftConfig.tables()[table] for table in ("data", "sft", "model", "training", "run")}
    add_all_settings(parser, tables, MOST_USED, without=NEVER_ACTS, defaults=SftConfig.DEFAULTS)
    add_resume_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    def loop(config: SftConfig, display: Display, resume: Resume | None, stop: StopRequest) -> None:
        from dapo.coordination.sft import train_supervised

        train_supervised(config, display, resume=resume, stop=stop)

    return run_loop(arguments, SftConfig, loop, supervised=True)
