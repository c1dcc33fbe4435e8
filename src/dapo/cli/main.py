"""`dapo`: train, measure and look at models, and say in two lines what a person can mend."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from dapo import __version__
from dapo.errors import ConfigError, DapoError
from dapo.wording import nearest


class Parser(argparse.ArgumentParser):
    """argparse, with our way of saying what is wrong."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message, fix=f"`{self.prog} --help` shows what there is")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, 2 for an error that a person can mend, 1 for a failed run."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(arguments)
    except DapoError as error:
        print(f"error: {error.problem}", file=sys.stderr)
        if error.fix:
            print(f"  fix: {error.fix}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _run(arguments: list[str]) -> int:
    from dapo.cli import algorithms, check_reward, export, new_model, plot, sft, show, train
    from dapo.cli import eval as evaluate

    commands = {
        "train": train,
        "sft": sft,
        "new-model": new_model,
        "eval": evaluate,
        "check-reward": check_reward,
        "export": export,
        "algorithms": algorithms,
        "plot": plot,
        "show": show,
    }
    parser = Parser(prog="dapo", description=__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"dapo {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="command", parser_class=Parser)
    for name, module in commands.items():
        summary = (module.__doc__ or "").splitlines()[0]
        module.add_arguments(
            subparsers.add_parser(
                name,
                help=summary,
                description=summary,
                allow_abbrev=False,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
        )
    chosen, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise _unknown(unknown[0], subparsers.choices.get(chosen.command, parser))
    if chosen.command is None:
        parser.print_help()
        return 0
    return commands[chosen.command].run(chosen)


def _unknown(word: str, parser: argparse.ArgumentParser) -> ConfigError:
    flag = word.split("=")[0]
    guess = nearest(flag, parser._option_string_actions)
    return ConfigError(
        f"unknown flag {flag}" if word.startswith("-") else f"unexpected argument {word!r}",
        fix=f"did you mean {guess}?" if guess else f"`{parser.prog} --help` shows what there is",
    )


if __name__ == "__main__":
    sys.exit(main())
