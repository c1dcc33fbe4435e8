"""Write the model of a checkpoint as a Hugging Face folder: `dapo export RUN_DIR --step N --out DIR`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="run folder")
    parser.add_argument("--step", type=int, help="update whose checkpoint is meant (default: the newest)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="type of the weights (default: as trained)")


def run(arguments: argparse.Namespace) -> int:
    from dapo.checkpoints.export import export_model
    from dapo.checkpoints.store import CheckpointStore
    from dapo.errors import CheckpointError
    from dapo.tracking.run_folder import RunFolder

    folder = RunFolder.open(arguments.run)
    store = CheckpointStore(folder.checkpoints)
    if arguments.step is not None:
        checkpoint = store.at(arguments.step)
    else:
        newest = store.newest(lambda text: print(f"warning: {text}", file=sys.stderr))
        if newest is None:
            raise CheckpointError(f"{folder.path} has no checkpoint yet", fix="train on until one is saved")
        checkpoint = newest
    export_model(checkpoint, arguments.out, arguments.dtype)
    print(f"{arguments.out}: the model after update {checkpoint.step}")
    return 0
