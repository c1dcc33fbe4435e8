"""Settings as flags: one for each field of a settings class."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

from dapo.cli.field_docs import field_docs


def add_setting_flags(
    parser: argparse.ArgumentParser,
    title: str,
    kind: type,
    without: Collection[str] = (),
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """A group of flags under `title`; help and defaults come from the class itself. A flag that is not given is left
    out of the namespace. without: fields that get no flag. defaults: what others are here instead."""
    group = parser.add_argument_group(f"[{title}] {(kind.__doc__ or '').splitlines()[0].rstrip('.')}")
    _add_flags(group, kind, [field.name for field in fields(kind) if field.name not in without], defaults)


def add_all_settings(
    parser: argparse.ArgumentParser,
    tables: Mapping[str, type],
    first: Collection[str],
    without: Collection[str] = (),
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """The flags of several settings classes: those of `first`, which nearly every run needs, and then by table."""
    group = parser.add_argument_group("most used")
    for name in first:
        (kind,) = [kind for kind in tables.values() if name in {field.name for field in fields(kind)}]
        _add_flags(group, kind, [name], defaults)
    for table, kind in tables.items():
        add_setting_flags(parser, table, kind, without=[*first, *without], defaults=defaults)


def _add_flags(group: argparse._ArgumentGroup, kind: type, names: Collection[str], defaults: Mapping[str, Any]) -> None:
    docs, hints = field_docs(kind), get_type_hints(kind)
    for field in fields(kind):
        if field.name not in names:
            continue
        flag = "--" + field.name.replace("_", "-")
        value = defaults.get(field.name, field.default)
        default = "" if value in (None, ()) else f" (default {value})"
        options: dict[str, Any] = {"dest": field.name, "default": argparse.SUPPRESS}
        options["help"] = (docs.get(field.name, "") + default).replace("%", "%%")
        if bool in (hints[field.name], *get_args(hints[field.name])):
            group.add_argument(flag, action=argparse.BooleanOptionalAction, **options)
        elif hints[field.name] == tuple[str, ...]:
            group.add_argument(flag, action="append", metavar="TEXT", **options)
        else:
            group.add_argument(flag, metavar=field.name.split("_")[-1].upper(), **options)
