"""Train a model: `dapo train [recipe.toml] [--flags]`. Flags are the settings' names."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from dapo.cli.field_docs import field_docs
from dapo.config import OWNER, TABLES, load_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag per setting, grouped by the part that owns it; defaults come from the settings themselves."""
    parser.add_argument("recipe", nargs="?", type=Path, help="a TOML file of settings; flags override it")
    for table, kind in TABLES.items():
        group = parser.add_argument_group(f"[{table}] {(kind.__doc__ or '').splitlines()[0]}")
        docs, hints = field_docs(kind), get_type_hints(kind)
        for field in fields(kind):
            flag = "--" + field.name.replace("_", "-")
            default = "" if field.default in (None, ()) else f" (default {field.default})"
            options: dict[str, Any] = {"dest": field.name, "default": argparse.SUPPRESS}
            options["help"] = (docs.get(field.name, "") + default).replace("%", "%%")
            if bool in (hints[field.name], *get_args(hints[field.name])):
                group.add_argument(flag, action=argparse.BooleanOptionalAction, **options)
            elif hints[field.name] == tuple[str, ...]:
                group.add_argument(flag, action="append", metavar="TEXT", **options)
            else:
                group.add_argument(flag, metavar=field.name.split("_")[-1].upper(), **options)


def run(arguments: argparse.Namespace) -> int:
    flags = {name: value for name, value in vars(arguments).items() if name in OWNER}
    config = load_config(arguments.recipe, flags)

    from dapo.coordination.run import train
    from dapo.tracking.display import make_display

    with make_display(sys.stdout) as display:
        train(config, display)
    return 0
