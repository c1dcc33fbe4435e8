"""The command `dapo`: finds the command that is meant, and says in two lines what a person can mend."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from dapo import __version__
from dapo.errors import ConfigError, DapoError

COMMANDS = {
    "train": "teach a model by a reward: DAPO, GRPO, GSPO or Dr. GRPO",
    "sft": "teach a model to write given solutions, before that or instead",
    "eval": "measure a model: avg@n, pass@k and maj@k on problems whose answers can be checked",
    "check-reward": "try a reward on a few rows",
    "show": "show an update's groups: prompt, answers, rewards and advantages",
    "plot": "draw the curves of one run, or of several compared",
    "export": "write a checkpoint's model as a Hugging Face folder",
    "new-model": "make a small model with random weights and a byte tokenizer",
    "algorithms": "list the algorithms",
}
"""Name -> what it does. Each is a file of this folder, loaded when it is asked for."""

OVERVIEW = f"""usage: dapo COMMAND [words ...]

Teach a language model to reason with rewards that can be checked.

{"".join(f"  {name:14}{summary}{chr(10)}" for name, summary in COMMANDS.items())}
`dapo COMMAND --help` shows what a command takes, `dapo --version` which version this is.

Try:
  dapo train task:arithmetic --reward exact_number --max-new-tokens 24 --max-steps 5
  dapo check-reward --reward math --dataset-path train.jsonl
  dapo eval --ckpt smollm2-135m --dataset-path task:arithmetic --reward exact_number --n 4 --max-new-tokens 24
"""


_ASSIGNED = re.compile(r"[+~]*[\w.]+=")
"""`rollout.n=8`, another system's way of giving a setting; a task's `task:name?key=value` is not meant."""


_SENTENCES = (
    (r"argument (\S+)(?:/\S+)?: expected one argument", "{0} needs a value behind it", "write {0} VALUE"),
    (r"argument (\S+): invalid int value: '(.*)'", "{0} is '{1}', not a whole number", "write {0} 3"),
    (r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", "{0} is '{1}'", "use one of {2}"),
    (r"the following arguments are required: (.*)", "{0} is missing", ""),
    (r"argument (\S+): ignored explicit argument '?(.*?)'?", "{0} is a switch and takes no value", "write {0} alone"),
)
"""What argparse says -> problem and fix."""


class Parser(argparse.ArgumentParser):
    """argparse, with our way of saying what is wrong."""

    def error(self, message: str) -> NoReturn:
        """argparse's sentence in words that say what to write."""
        see = f"`{self.prog} --help` shows what there is"
        for pattern, problem, fix in _SENTENCES:
            said = re.fullmatch(pattern, message)
            if said:
                raise ConfigError(problem.format(*said.groups()), fix=fix.format(*said.groups()) if fix else see)
        raise ConfigError(message, fix=see)


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
    name, words = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if name in ("--help", "-h"):
        print(OVERVIEW, end="")
        return 0
    if name == "--version":
        print(f"dapo {__version__}")
        return 0
    if name not in COMMANDS:
        raise _unknown_command(name)
    parser = parser_of(name)
    words = [_dashed(word, parser) for word in words]
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == "--":
            break
        if word.startswith("--") and word.split("=")[0] not in parser._option_string_actions:
            raise _unknown(word, name, following)
    chosen, unknown = parser.parse_known_args(words)
    recipe = getattr(chosen, "recipe", None) or ""
    for word in ([recipe] if _ASSIGNED.match(recipe) else []) + unknown:
        raise _unknown(word, name)
    return int(_module(name).run(chosen))


def parser_of(name: str) -> Parser:
    """The parser of a command."""
    summary = COMMANDS[name]
    parser = Parser(
        prog=f"dapo {name}",
        description=summary[0].upper() + summary[1:] + ".",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _module(name).add_arguments(parser)
    return parser


def _module(name: str):  # type: ignore[no-untyped-def]  # a command's file: add_arguments and run
    return import_module(f"dapo.cli.{name.replace('-', '_')}")


def _dashed(word: str, parser: argparse.ArgumentParser) -> str:
    """`--batch_size=4` as `--batch-size=4`, where that is a flag."""
    flag, equals, value = word.partition("=")
    dashed = flag.replace("_", "-")
    return dashed + equals + value if word.startswith("--") and dashed in parser._option_string_actions else word


def _unknown(word: str, name: str, following: str = "") -> ConfigError:
    from dapo.cli.unknown_words import unknown_word

    return unknown_word(word, following, name, {each: parser_of(each) for each in COMMANDS})


def _unknown_command(word: str) -> ConfigError:
    from dapo.wording import nearest

    if word.startswith("-"):
        return ConfigError(f"unknown flag {word}", fix="name a command first, such as `dapo train`; see `dapo --help`")
    guess = nearest(word, COMMANDS)
    return ConfigError(
        f"unknown command {word!r}",
        fix=f"did you mean `dapo {guess}`?" if guess else f"use one of {', '.join(COMMANDS)}",
    )


if __name__ == "__main__":
    sys.exit(main())
