"""What is said of a word on the command line that means nothing here."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping

from dapo.errors import ConfigError
from dapo.peers import ROWS, all_names, as_flag, explain, find, plain
from dapo.wording import nearest, nearest_setting

Commands = Mapping[str, argparse.ArgumentParser]


def unknown_word(word: str, following: str, command: str, commands: Commands) -> ConfigError:
    """The error for a word that the parser of `command` could not take. following: the word behind it, or none."""
    parser = commands[command]
    typed, equals, value = word.partition("=")
    if not equals and not following.startswith("-"):
        value = following
    flags = flags_of(parser)
    settings = {plain(flag) for flag in flags}
    peer = find(typed)
    if peer is not None and (word.startswith("-") or "=" in word):
        problem, fix = explain(peer, settings, typed, value, flags=True)
        return ConfigError(problem, fix=fix)
    if not word.startswith("-"):
        return _unexpected(word, typed, value, parser, settings)
    others = [name for name, each in commands.items() if typed in flags_of(each) and name != command]
    if others:
        return _of_another_command(typed, command, others, settings)
    guess = nearest_setting(typed, flags)
    meant = None if guess else find(nearest(plain(typed), all_names(), cutoff=0.8) or "")
    if meant is not None:
        problem, fix = explain(meant, settings, meant.name, value, flags=True)
        return ConfigError(f"unknown flag {typed}: {problem}", fix=fix)
    return ConfigError(f"unknown flag {typed}", fix=f"did you mean {guess}?" if guess else shows(parser))


def flags_of(parser: argparse.ArgumentParser) -> list[str]:
    return [flag for flag in parser._option_string_actions if flag.startswith("--")]


def shows(parser: argparse.ArgumentParser) -> str:
    return f"`{parser.prog} --help` shows what there is"


def _unexpected(
    word: str, typed: str, value: str, parser: argparse.ArgumentParser, settings: Collection[str]
) -> ConfigError:
    """A word without dashes; `lr=1e-5` is a setting in another system's way of writing."""
    if "=" in word and plain(typed) in settings:
        return ConfigError(f"unexpected argument {word!r}", fix=f"write {as_flag(plain(typed))} {value}")
    return ConfigError(f"unexpected argument {word!r}", fix=shows(parser))


def _of_another_command(flag: str, command: str, others: list[str], settings: Collection[str]) -> ConfigError:
    """A flag that is known elsewhere; here the same thing may have another name, or none."""
    names = [row.here.split() for row in ROWS if plain(flag) in row.here.split()]
    here = [name for row in names for name in row if name in settings]
    where = " and ".join(f"`dapo {name}`" for name in others)
    fix = f"here it is {as_flag(here[0])}" if here else "leave it out"
    return ConfigError(f"{flag} is a flag of {where}, not of `dapo {command}`", fix=fix)
