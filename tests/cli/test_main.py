"""The command `dapo`: what it prints, what it exits with, and that a person's mistake is never a traceback."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys

import pytest

from dapo import __version__
from dapo.algorithms.registry import ALGORITHMS
from dapo.cli.main import COMMANDS, OVERVIEW, main, parser_of
from dapo.config import OWNER, TABLES


def help_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as caught:
        main([*arguments, "--help"])
    assert caught.value.code == 0
    return capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dapo {__version__}\n"


def test_algorithms_are_listed_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["algorithms"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["dapo", "grpo", "gspo", "dr_grpo"]
    assert [line.split(maxsplit=1)[1] for line in lines] == [spec.summary for spec in ALGORITHMS.values()]


def test_without_a_command_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "train" in out
    assert "algorithms" in out
    assert out == OVERVIEW


def test_help_of_train_has_every_setting_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(["train"], capsys)
    for name in OWNER:
        assert f"--{name.replace('_', '-')}" in text
    for table in TABLES:
        assert f"[{table}]" in text
    words = " ".join(text.split())
    assert "Answers per prompt (G), at least 2. (default 8)" in words
    assert "upper half-width of the clip, at least the lower (0.28)." in words


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_and_version_load_nothing_heavy(command: str) -> None:
    """In a process of its own: here everything is loaded already. What is heavy takes seconds to load."""
    words = [command, "--help"] if command else ["--version"]
    code = f"""
import sys
from dapo.cli.main import main
try:
    main({words!r})
except SystemExit:
    pass
print(*{{name.split('.')[0] for name in sys.modules}}, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "dapo" in loaded
    assert not {"torch", "transformers", "numpy", "pydantic", "datasets", "rich"} & loaded


@pytest.mark.parametrize("command", ["train", "sft", "eval"])
def test_help_begins_with_what_nearly_every_run_needs_and_ends_with_commands_to_paste(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of([command], capsys)
    groups = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert "most used" in groups[:4]
    examples = text.rstrip().splitlines()[-3:]
    assert all(line.startswith(f"  dapo {command} ") for line in examples)
    for line in examples:
        parser_of(command).parse_args(shlex.split(line)[2:])


@pytest.mark.parametrize("line", [line for line in OVERVIEW.splitlines() if line.startswith("  dapo ")])
def test_the_commands_of_the_overview_can_be_pasted(line: str) -> None:
    words = shlex.split(line)
    parser_of(words[1]).parse_args(words[2:])


@pytest.mark.parametrize(
    ("arguments", "error", "fix"),
    [
        (["trian"], "unknown command 'trian'", "did you mean `dapo train`?"),
        (["evla"], "unknown command 'evla'", "did you mean `dapo eval`?"),
        (["newmodel"], "unknown command 'newmodel'", "did you mean `dapo new-model`?"),
        (
            ["qqqq"],
            "unknown command 'qqqq'",
            "use one of train, sft, eval, check-reward, show, plot, export, new-model",
        ),
        (["--qqqq"], "unknown flag --qqqq", "name a command first, such as `dapo train`; see `dapo --help`"),
        (["train", "--batchsize", "4"], "unknown flag --batchsize", "did you mean --batch-size?"),
        (["train", "--temp", "1"], "unknown flag --temp", "did you mean --temperature?"),
        (
            ["train", "--gradient-acc", "1"],
            "unknown flag --gradient-acc",
            "did you mean --gradient-accumulation-steps?",
        ),
        (["train", "--verbose"], "unknown flag --verbose", "`dapo train --help` shows what there is"),
        (["train", "--qqqq"], "unknown flag --qqqq", "`dapo train --help` shows what there is"),
        (["train", "--n-samples"], "--n-samples needs a value behind it", "write --n-samples VALUE"),
        (["check-reward", "--rows", "x"], "--rows is 'x', not a whole number", "write --rows 3"),
        (["export", "r", "--out", "o", "--dtype", "fp16"], "--dtype is 'fp16'", "use one of"),
        (["export", "r"], "--out is missing", "`dapo export --help` shows"),
        (["train", "--dedup-prompts=3"], "--dedup-prompts", "write --dedup-prompts"),
        (["train", "a.toml", "b.toml"], "unexpected argument 'b.toml'", "`dapo train --help` shows what there is"),
        (["algorithms", "dapo"], "unexpected argument 'dapo'", "`dapo algorithms --help` shows what there is"),
    ],
)
def test_a_mistyped_command_line_is_two_lines_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], error: str, fix: str
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    first, second = err.splitlines()
    assert out == ""
    assert first.startswith(f"error: {error}")
    assert second.startswith(f"  fix: {fix}")


def test_an_interrupt_exits_with_the_usual_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(arguments: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("dapo.cli.algorithms.run", interrupted)
    assert main(["algorithms"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_as_a_process_of_its_own_an_error_is_two_lines_and_exit_code_2() -> None:
    process = subprocess.run(
        [sys.executable, "-m", "dapo.cli.main", "train", "none.toml"], capture_output=True, text=True, check=False
    )
    assert process.returncode == 2
    assert process.stdout == ""
    assert process.stderr == (
        "error: recipe none.toml does not exist\n  fix: name a TOML file, such as recipes/quickstart.toml\n"
    )
