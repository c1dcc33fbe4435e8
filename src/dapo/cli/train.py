"""Train a model with a recipe, flags, or both. Flags are the settings' names."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dapo.cli.setting_flags import add_all_settings
from dapo.config import TABLES, C, RunConfig, load
from dapo.errors import ConfigError
from dapo.tracking.run_folder import RunFolder

if TYPE_CHECKING:
    from dapo.coordination.resume import Resume
    from dapo.coordination.stopping import StopRequest
    from dapo.tracking.display import Display


MOST_USED = (
    *("ckpt", "dataset_path", "reward", "reward_fn_path", "n_samples", "batch_size", "max_new_tokens"),
    *("lr", "max_steps", "epochs", "save_path"),
)
DATA_SUFFIXES = (".json", ".jsonl", ".csv", ".parquet")
DEFAULT_MODEL = "smollm2-135m"
ORDER = ("data", "model", "reward", "rollout", "collection", "training", "run", "algorithm", "alarms")
"""Tables in the order of the questions that a person comes with."""
EXAMPLES = """three commands to try:
  dapo train task:arithmetic --reward exact_number --max-new-tokens 24 --max-steps 5 --dry-run
  dapo train --ckpt Qwen/Qwen2.5-0.5B-Instruct --dataset-path train.jsonl --reward math --max-steps 200
  dapo train --resume auto
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag per setting, grouped by the part that owns it; defaults come from the settings themselves."""
    parser.usage = "dapo train [recipe.toml | DATA] [--setting value ...]"
    parser.epilog = EXAMPLES
    add_positional(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="show three prompts, a graded answer and what one update takes, and end without a run",
    )
    add_all_settings(parser, {table: TABLES[table] for table in ORDER}, MOST_USED)
    add_resume_flags(parser)


def add_positional(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe",
        nargs="?",
        metavar="recipe.toml | DATA",
        help="a TOML file of settings, which flags override; anything else is the data, as --dataset-path",
    )


def add_resume_flags(parser: argparse.ArgumentParser) -> None:
    resuming = parser.add_argument_group("going on with a run, from its newest checkpoint and with its settings")
    resuming.add_argument(
        "--resume",
        metavar="RUN_DIR",
        help="the run's folder, or `auto`: the one in --save-path, else the latest under runs/, else a new run",
    )
    resuming.add_argument(
        "--allow-changes", action="store_true", help="go on although data, reward or settings would alter the run"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.dry_run and arguments.resume is not None:
        raise ConfigError("--dry-run is given with --resume, whose run is known", fix="leave one of them out")

    def loop(config: RunConfig, display: Display, resume: Resume | None, stop: StopRequest) -> None:
        from dapo.coordination.dry_run import dry_run
        from dapo.coordination.run import train

        if arguments.dry_run:
            dry_run(config, display)
        else:
            train(config, display, resume=resume, stop=stop)

    return run_loop(arguments, RunConfig, loop, supervised=False)


def run_loop(
    arguments: argparse.Namespace,
    kind: type[C],
    loop: Callable[[C, Display, Resume | None, StopRequest], None],
    *,
    supervised: bool,
) -> int:
    """Put the settings together, then begin the loop or go on with it; returns the exit code.

    loop: imports what is slow to import itself, so that a wrong setting is said at once.
    """
    flags = {name: value for name, value in vars(arguments).items() if name in kind.owners()}
    recipe, notices = read_positional(arguments.recipe, flags)
    folder = run_to_resume(arguments, supervised=supervised)
    if folder is not None:
        flags["save_path"] = str(folder.path)
    config = load(kind, recipe, flags, saved=folder.config if folder else None)

    from dapo.coordination.resume import Resume
    from dapo.coordination.stopping import StopRequest
    from dapo.tracking.make_display import make_display

    stop = StopRequest()
    with make_display(sys.stdout) as display:
        for notice in notices:
            display.notice(notice)
        if arguments.resume == "auto" and folder is None:
            display.notice("there is no run to go on with: starting a new one at update 0")
        loop(config, display, Resume(folder, arguments.allow_changes) if folder else None, stop)
    return stop.exit_code


def read_positional(word: str | None, flags: dict[str, Any]) -> tuple[Path | None, list[str]]:
    """The recipe, if the word names one; otherwise it is the data, which `flags` get, and everything else has a
    default. Returns what is to be said of it as well."""
    if word is None or not _is_data(word):
        return (None if word is None else Path(word)), []
    if "dataset_path" in flags:
        raise ConfigError(
            f"the data are given twice: {word} and --dataset-path {flags['dataset_path']}", fix="leave one of them out"
        )
    flags["dataset_path"] = word
    if "ckpt" in flags:
        return None, []
    flags["ckpt"] = DEFAULT_MODEL
    return None, [f"no --ckpt is given: taking the bundled model {DEFAULT_MODEL}"]


def _is_data(word: str) -> bool:
    """Whether a word without a flag names data. A file of another kind is taken for a recipe with an odd name."""
    if word.endswith(".toml"):
        return False
    return word.endswith(DATA_SUFFIXES) or os.path.isdir(word) or not os.path.exists(word)


def run_to_resume(arguments: argparse.Namespace, *, supervised: bool) -> RunFolder | None:
    """The folder of the run to go on with; None for a new run.

    supervised: it is `dapo sft` that asks. Raises ConfigError when `--resume` names no run of the asking command.
    """
    resume, save_path = arguments.resume, getattr(arguments, "save_path", None)
    if resume is None:
        if arguments.allow_changes:
            raise ConfigError(
                "--allow-changes is given but --resume is not", fix="leave it out, or name a run to go on with"
            )
        return None
    if resume != "auto" and save_path is not None and Path(save_path).resolve() != Path(resume).resolve():
        raise ConfigError(
            f"--save-path is {save_path} but --resume is {resume}", fix="leave --save-path out: a run keeps its folder"
        )
    from dapo.coordination.resume import is_supervised, newest_run

    path = Path(save_path) if save_path else None
    folder = newest_run(path, supervised=supervised) if resume == "auto" else RunFolder.open(Path(resume))
    if folder is not None and is_supervised(folder.config) != supervised:
        command = "train" if supervised else "sft"
        raise ConfigError(f"{folder.path} is a run of `dapo {command}`", fix="go on with it by that command")
    return folder
