"""Warm start: teach a model to write given solutions, with a recipe, flags, or both."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dapo.cli.setting_flags import add_setting_flags
from dapo.cli.train import add_resume_flags, run_loop
from dapo.coordination.sft_settings import NEVER_ACTS, SftConfig

if TYPE_CHECKING:
    from dapo.coordination.resume import Resume
    from dapo.coordination.stopping import StopRequest
    from dapo.tracking.display import Display


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag per setting, grouped by the part that owns it."""
    parser.usage = "dapo sft [recipe.toml] [--setting value ...]"
    parser.add_argument("recipe", nargs="?", type=Path, help="a TOML file of settings; flags override it")
    add_resume_flags(parser)
    for table, kind in SftConfig.tables().items():
        add_setting_flags(parser, table, kind, without=NEVER_ACTS, defaults=SftConfig.DEFAULTS)


def run(arguments: argparse.Namespace) -> int:
    def loop(config: SftConfig, display: Display, resume: Resume | None, stop: StopRequest) -> None:
        from dapo.coordination.sft import train_supervised

        train_supervised(config, display, resume=resume, stop=stop)

    return run_loop(arguments, SftConfig, loop, supervised=True)
