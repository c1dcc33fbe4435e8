"""Write the model of a checkpoint as a Hugging Face folder: `dapo export RUN_DIR --step N --out DIR`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN_DIR", help="run folder, or RUN_DIR@step_40")
    parser.add_argument("--step", type=int, help="update whose checkpoint is meant (default: the newest)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="type of the weights (default: as trained)")


def run(arguments: argparse.Namespace) -> int:
    from dapo.checkpoints.export import export_model
    from dapo.checkpoints.model_of_run import NamedRun, named_run
    from dapo.checkpoints.store import CheckpointStore
    from dapo.errors import CheckpointError, ConfigError
    from dapo.tracking.run_folder import RunFolder

    named = named_run(arguments.run) or NamedRun(Path(arguments.run), None)
    if arguments.step is not None:
        if named.step not in (None, arguments.step):
            raise ConfigError(
                f"--step is {arguments.step} but {arguments.run} names step {named.step}", fix="leave one of them out"
            )
        named = replace(named, step=arguments.step)
    folder = RunFolder.open(named.folder)
    store = CheckpointStore(folder.checkpoints)
    if named.step is not None:
        checkpoint = store.at(named.step)
    else:
        newest = store.newest(lambda text: print(f"warning: {text}", file=sys.stderr))
        if newest is None:
            raise CheckpointError(f"{folder.path} has no checkpoint yet", fix="train on until one is saved")
        checkpoint = newest
    export_model(checkpoint, arguments.out, arguments.dtype)
    print(f"{arguments.out}: the model after update {checkpoint.step}")
    return 0
