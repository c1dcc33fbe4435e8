"""Warm start: teach a model to write given solutions, with a recipe, flags, or both."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dapo.cli.setting_flags import add_setting_flags
from dapo.cli.train import add_resume_flags, run_to_resume
from dapo.config import load
from dapo.coordination.sft_settings import NEVER_ACTS, SftConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag per setting, grouped by the part that owns it."""
    parser.usage = "dapo sft [recipe.toml] [--setting value ...]"
    parser.add_argument("recipe", nargs="?", type=Path, help="a TOML file of settings; flags override it")
    add_resume_flags(parser)
    for table, kind in SftConfig.tables().items():
        add_setting_flags(parser, table, kind, without=NEVER_ACTS, defaults=SftConfig.DEFAULTS)


def run(arguments: argparse.Namespace) -> int:
    flags = {name: value for name, value in vars(arguments).items() if name in SftConfig.owners()}
    folder = run_to_resume(arguments, supervised=True)
    if folder is not None:
        flags["save_path"] = str(folder.path)
    config = load(SftConfig, arguments.recipe, flags, saved=folder.config if folder else None)

    from dapo.coordination.resume import Resume
    from dapo.coordination.sft import train_supervised
    from dapo.coordination.stopping import StopRequest
    from dapo.tracking.make_display import make_display

    stop = StopRequest()
    with make_display(sys.stdout) as display:
        if arguments.resume == "auto" and folder is None:
            display.notice("there is no run to go on with: starting a new one at update 0")
        train_supervised(config, display, resume=Resume(folder, arguments.allow_changes) if folder else None, stop=stop)
    return stop.exit_code
