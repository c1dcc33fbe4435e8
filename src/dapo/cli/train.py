"""Train a model with a recipe, flags, or both. Flags are the settings' names."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dapo.cli.setting_flags import add_setting_flags
from dapo.config import OWNER, TABLES, load_config
from dapo.errors import ConfigError
from dapo.tracking.run_folder import RunFolder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag per setting, grouped by the part that owns it; defaults come from the settings themselves."""
    parser.usage = "dapo train [recipe.toml] [--setting value ...]"
    parser.add_argument("recipe", nargs="?", type=Path, help="a TOML file of settings; flags override it")
    resuming = parser.add_argument_group("going on with a run, from its newest checkpoint and with its settings")
    resuming.add_argument(
        "--resume",
        metavar="RUN_DIR",
        help="the run's folder, or `auto`: the one in --save-path, else the latest under runs/, else a new run",
    )
    resuming.add_argument(
        "--allow-changes", action="store_true", help="go on although data, reward or settings would alter the run"
    )
    for table, kind in TABLES.items():
        add_setting_flags(parser, table, kind)


def run(arguments: argparse.Namespace) -> int:
    flags = {name: value for name, value in vars(arguments).items() if name in OWNER}
    folder = _run_to_resume(arguments.resume, flags.get("save_path"))
    if folder is None and arguments.allow_changes and arguments.resume is None:
        raise ConfigError(
            "--allow-changes is given but --resume is not", fix="leave it out, or name a run to go on with"
        )
    if folder is not None:
        flags["save_path"] = str(folder.path)
    config = load_config(arguments.recipe, flags, saved=folder.config if folder else None)

    from dapo.coordination.resume import Resume
    from dapo.coordination.run import train
    from dapo.coordination.stopping import StopRequest
    from dapo.tracking.make_display import make_display

    stop = StopRequest()
    with make_display(sys.stdout) as display:
        if arguments.resume == "auto" and folder is None:
            display.notice("there is no run to go on with: starting a new one at update 0")
        train(config, display, resume=Resume(folder, arguments.allow_changes) if folder else None, stop=stop)
    return stop.exit_code


def _run_to_resume(resume: str | None, save_path: str | None) -> RunFolder | None:
    """The folder of the run to go on with; None for a new run. Raises ConfigError when `resume` names none."""
    if resume is None:
        return None
    if resume == "auto":
        from dapo.coordination.resume import newest_run

        return newest_run(Path(save_path) if save_path else None)
    if save_path is not None and Path(save_path).resolve() != Path(resume).resolve():
        raise ConfigError(
            f"--save-path is {save_path} but --resume is {resume}", fix="leave --save-path out: a run keeps its folder"
        )
    return RunFolder.open(Path(resume))
