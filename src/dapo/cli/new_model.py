"""Make a small model with random weights and a byte tokenizer: `dapo new-model OUT --layers 4`."""

from __future__ import annotations

import argparse
from pathlib import Path

from dapo.cli.setting_flags import add_setting_flags
from dapo.config import make_settings
from dapo.models.new_model import NewModelSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write, in Hugging Face format")
    add_setting_flags(parser, "model", NewModelSettings)


def run(arguments: argparse.Namespace) -> int:
    settings = make_settings(NewModelSettings, vars(arguments))

    from dapo.checkpoints.whole_folder import unused, written_whole
    from dapo.models.hush import hush_transformers
    from dapo.models.new_model import save_new_model
    from dapo.tracking.numbers import compact

    hush_transformers()
    with written_whole(unused(arguments.out, "OUT")) as aside:
        parameters = save_new_model(settings, aside)
    print(f"{arguments.out}: {compact(parameters)} parameters, random; teach it with `dapo sft --ckpt {arguments.out}`")
    return 0
