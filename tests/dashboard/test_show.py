"""`dapo show`: the groups of an update, read from a real run's folder or a written one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dapo.cli.main import main
from dapo.dashboard.show import COLOURINGS, clipped, colouring_of, group_view, groups_of_step, legend, token_pieces
from dapo.errors import ConfigError, DataError
from dapo.records import Completion, Group, Prompt, Score, TrainedTokens
from dapo.tracking.rollout_log import RolloutLog


def group(number: int, *texts: str, reference: Any = "7") -> Group:
    completions = tuple(
        Completion(tuple(range(len(text))), (-0.1,) * len(text), text, "stop" if text.endswith(".") else "length")
        for text in texts
    )
    scores = tuple(Score(float(number_of)) for number_of in range(len(texts)))
    return Group(number, Prompt(10 + number, f"prompt {number}", (1,), answer=reference), completions, scores, 3)


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    """Update 1 has group 0; update 2 drops group 1 and trains group 2; update 3 has group 3."""
    path = tmp_path / "rollouts.jsonl"
    log = RolloutLog(path)
    log.write(1, group(0, "one.", "two."), "trained", (0.0, 0.0), (-1.0, 1.0))
    log.write(2, group(1, "three.", "four."), "constant")
    log.write(2, group(2, "five.", "six"), "trained", (0.0, -0.25), (0.5, -0.5))
    log.write(3, group(3, "seven.", "eight."), "trained", (0.0, 0.0), (1.0, -1.0))
    return path


def printed(*parts: Any, width: int = 100, colours: bool = False) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=colours, color_system="256" if colours else None)
    for part in parts:
        console.print(part)
    return stream.getvalue()


def test_the_groups_of_one_update_are_found_trained_ones_first(rollouts: Path) -> None:
    assert [line["group"] for line in groups_of_step(rollouts, 2)] == [2, 1]
    assert [line["group"] for line in groups_of_step(rollouts, 2, 1)] == [1]
    assert [line["group"] for line in groups_of_step(rollouts, 1)] == [0]


def test_an_update_or_group_that_is_not_there_is_named_with_what_is(rollouts: Path) -> None:
    with pytest.raises(DataError, match=r"update 9 is not in .*; the last update before it is 3"):
        groups_of_step(rollouts, 9)
    with pytest.raises(DataError, match=r"update 0 is not in .*; no update comes before it"):
        groups_of_step(rollouts, 0)
    with pytest.raises(DataError, match="group 0 is not in update 2") as caught:
        groups_of_step(rollouts, 2, 0)
    assert caught.value.fix == "its groups are 1, 2"


def test_a_damaged_later_update_does_not_hide_this_one(rollouts: Path) -> None:
    with rollouts.open("a") as file:
        file.write("broken\n")
    assert [line["group"] for line in groups_of_step(rollouts, 2)] == [2, 1]


def test_a_group_shows_prompt_rewards_penalty_advantage_length_and_end(rollouts: Path) -> None:
    text = printed(group_view(groups_of_step(rollouts, 2, 2)[0], None, 100))
    for words in (
        "group 2, row 12, weights 3: trained",
        "prompt 2",
        "reference answer: 7",
        "reward 0, advantage +0.50",
        "reward 1 - 0.25, advantage -0.50",
        "5 tokens, ended",
        "3 tokens, cut at the limit",
    ):
        assert words in text


def test_a_dropped_group_says_why_and_has_no_advantage(rollouts: Path) -> None:
    text = printed(group_view(groups_of_step(rollouts, 2, 1)[0], None, 100))
    assert "dropped: its answers all score the same" in text
    assert "advantage" not in text


@pytest.mark.parametrize(("width", "side_by_side"), [(100, True), (40, False)])
def test_answers_stand_side_by_side_where_there_is_room(rollouts: Path, width: int, side_by_side: bool) -> None:
    lines = printed(group_view(groups_of_step(rollouts, 1)[0], None, width), width=width).splitlines()
    assert any("one." in line and "two." in line for line in lines) is side_by_side


def line_of(pieces: Sequence[str], status: str = "trained", **fields: Any) -> dict[str, Any]:
    """A line whose only answer has these pieces; without further fields, as runs wrote it that knew no ratios."""
    answer = {
        "text": "".join(pieces),
        "tokens": list(range(len(pieces))),
        "logprobs": [-1.0] * len(pieces),
        "stop_reason": "stop",
        "reward": 1.0,
        "penalty": None,
        "advantage": None,
        **fields,
    }
    line = {"group": 0, "prompt_index": 0, "version": 0, "status": status, "prompt": "p", "answer": None}
    return {**line, "completions": [answer]}


def shown(line: dict[str, Any], pieces: Sequence[str], colours: bool) -> str:
    return printed(group_view(line, lambda tokens: list(pieces), 40, colouring_of([line])), colours=colours)


def test_without_ratios_tokens_are_coloured_by_the_probability_they_were_drawn_with() -> None:
    # exp(-0.1) = .90, exp(-1) = .37, exp(-3) = .05, exp(-7) = .0009
    line = line_of("abcd", logprobs=[-0.1, -1.0, -3.0, -7.0])
    assert colouring_of([line]) is COLOURINGS["probability"]
    assert "a\x1b[33mb\x1b[0m\x1b[38;5;208mc\x1b[0m\x1b[1;31md\x1b[0m" in shown(line, "abcd", colours=True)


def test_tokens_are_coloured_by_the_ratio_of_training_to_drawing() -> None:
    # exp(-.5 + 1) = 1.65, exp(-.8 + 1) = 1.22, exp(-1 + 1) = 1, exp(-1.2 + 1) = .82, exp(-1.6 + 1) = .55
    line = line_of("abcde", train_logprobs=[-0.5, -0.8, -1.0, -1.2, -1.6], clipped_upper=[], clipped_lower=[])
    assert colouring_of([line]) is COLOURINGS["ratio"]
    right = "\x1b[1;38;5;208ma\x1b[0m\x1b[33mb\x1b[0mc\x1b[36md\x1b[0m\x1b[1;38;5;33me\x1b[0m"
    assert right in shown(line, "abcde", colours=True)


@pytest.mark.parametrize("log_ratio", [2000.0, -2000.0])
def test_a_ratio_beyond_all_numbers_is_shown(log_ratio: float) -> None:
    line = line_of("a", train_logprobs=[log_ratio - 1.0], clipped_upper=[], clipped_lower=[])
    assert "a" in shown(line, "a", colours=True)


def test_one_kind_of_colour_holds_for_the_whole_update() -> None:
    """A dropped group has no ratios: beside trained ones it stays without colours, which would mean something else."""
    trained = line_of("ab", train_logprobs=[-1.0, -1.0], clipped_upper=[], clipped_lower=[])
    dropped = line_of("ab", "constant", train_logprobs=None, clipped_upper=None, clipped_lower=None)
    colouring = colouring_of([dropped, trained])
    assert colouring is COLOURINGS["ratio"]
    assert "\x1b[33m" not in printed(group_view(dropped, lambda tokens: list("ab"), 40, colouring), colours=True)
    assert colouring_of([dropped]) is COLOURINGS["probability"]


def test_the_colouring_can_be_chosen_and_ratios_that_are_not_there_are_refused() -> None:
    trained = line_of("a", train_logprobs=[-1.0], clipped_upper=[], clipped_lower=[])
    assert colouring_of([trained], "probability") is COLOURINGS["probability"]
    assert colouring_of([trained], "ratio") is COLOURINGS["ratio"]
    with pytest.raises(ConfigError, match="--colour is ratio but these answers were not trained") as refused:
        colouring_of([line_of("a")], "ratio")
    assert "probability" in refused.value.fix


def test_clipped_tokens_are_marked_with_an_arrow_that_needs_no_colour() -> None:
    """Behind the token, on its own line; the space before a word is not underlined."""
    pieces = ["The", " sum", "7\n", "x"]
    line = line_of(pieces, train_logprobs=[-1.0] * 4, clipped_upper=[1], clipped_lower=[0, 2])
    text = shown(line, pieces, colours=False)
    assert "The\u2193 sum\u21917\u2193" in text
    assert "4 tokens, ended, 1\u2191 2\u2193" in text
    assert clipped([line])
    coloured = shown(line, pieces, colours=True)
    assert "\x1b[4mThe\x1b[0m\x1b[1m\u2193\x1b[0m \x1b[4msum\x1b[0m\x1b[1m\u2191\x1b[0m" in coloured


def test_an_answer_that_the_update_left_out_says_so() -> None:
    left_out: dict[str, Any] = {"train_logprobs": None, "clipped_upper": None, "clipped_lower": None}
    assert "untrained, 1 token" in shown(line_of("a", **left_out), "a", colours=False)
    assert "untrained" not in shown(line_of("a", "constant", **left_out), "a", colours=False)  # its heading says it
    assert "untrained" not in shown(line_of("a"), "a", colours=False)  # nobody knows


def test_the_legend_names_the_colours_and_what_cannot_be_shown() -> None:
    old = [line_of("a")]
    text = printed(legend(old, COLOURINGS["probability"]), width=200)
    assert "at least 50%, 10% to 50%, 1% to 10%, below 1%" in text
    assert "no ratios and clips: these answers were not trained, or their run did not record it" in text
    trained = [line_of("a", train_logprobs=[-1.0], clipped_upper=[], clipped_lower=[])]
    for name in ("ratio", "probability"):
        assert "no token was clipped" in printed(legend(trained, COLOURINGS[name]), width=200)
    held = [line_of("a", train_logprobs=[-1.0], clipped_upper=[0], clipped_lower=[])]
    text = printed(legend(held, COLOURINGS["ratio"]), width=200)
    assert "1.5 and more, 1.1 to 1.5, 0.9 to 1.1, 0.67 to 0.9, below 0.67" in text
    assert "\u2191 or \u2193 after a token: its ratio was clipped" in text
    assert "colour" not in printed(legend(held, None), width=200)


def test_a_hostile_answer_cannot_move_the_cursor(tmp_path: Path) -> None:
    log = RolloutLog(tmp_path / "rollouts.jsonl")
    log.write(1, group(0, "\x1b[2J[bold]x[/bold]", "\u202eabc", reference="\x1b]0;t\x07"), "constant")
    text = printed(group_view(groups_of_step(tmp_path / "rollouts.jsonl", 1)[0], None, 100))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold]x[/bold]" in text


def decode_bytes(tokens: Sequence[int]) -> str:
    """A tokenizer of single bytes."""
    return bytes(tokens).decode("utf-8", "replace")


def test_b17_a_character_of_several_tokens_comes_with_its_last_one() -> None:
    assert token_pieces(decode_bytes, "a数b".encode()) == ["a", "", "", "数", "b"]
    assert token_pieces(decode_bytes, "数".encode()[:2]) == ["", "\ufffd"]  # an answer that was cut inside it
    assert token_pieces(decode_bytes, []) == []


def test_pieces_of_a_tokenizer_that_drops_the_first_space_join_to_the_text() -> None:
    words = ["▁The", "▁sum", "▁is", "▁7", "."]

    def decode(tokens: Sequence[int]) -> str:
        return "".join(words[token] for token in tokens).replace("▁", " ").removeprefix(" ")

    assert token_pieces(decode, range(5)) == ["The", " sum", " is", " 7", "."]


def test_the_command_shows_a_real_run(run_training: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    reward = "def reward_fn(record):\n    return float(record.metadata['sample_index'])\n"
    folder = run_training(prompts=["ab", "cd"], reward=reward, batch_size=1, max_steps=1, name="shown")
    assert main(["show", str(folder), "--step", "1"]) == 0
    out = capsys.readouterr().out
    assert "reward 0, advantage -1.00" in out  # of 0 and 1: mean .5, deviation .5
    assert "reward 1, advantage +1.00" in out
    assert "\x1b" not in out
    assert main(["show", str(folder), "--step", "2"]) == 2
    assert "the last update before it is 1" in capsys.readouterr().err
    assert main(["show", str(folder.parent), "--step", "1"]) == 2
    assert "is not a run folder" in capsys.readouterr().err
    assert main(["show", str(folder)]) == 2
    assert "--step" in capsys.readouterr().err


def test_in_a_terminal_the_run_s_own_tokenizer_splits_the_answers(
    run_training: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reward = "def reward_fn(record):\n    return float(record.metadata['sample_index'])\n"
    folder = run_training(prompts=["ab"], reward=reward, batch_size=1, max_steps=1, name="coloured")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert main(["show", str(folder), "--step", "1"]) == 0
    out = capsys.readouterr().out
    assert "colour: probability of the token when it was trained over when it was drawn" in out
    assert main(["show", str(folder), "--step", "1", "--colour", "probability"]) == 0
    assert "colour: probability of the token when it was drawn" in capsys.readouterr().out
    settings = folder / "config.toml"
    settings.write_text(settings.read_text().replace("ckpt = ", "ckpt = '/nowhere' # "))
    assert main(["show", str(folder), "--step", "1"]) == 0
    said = capsys.readouterr()
    assert "tokens are neither coloured nor marked: ckpt /nowhere does not exist" in said.err
    assert "colour: " not in said.out


def test_in_a_terminal_without_colours_nothing_is_said_of_them(
    run_training: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reward = "def reward_fn(record):\n    return float(record.metadata['sample_index'])\n"
    folder = run_training(prompts=["ab", "cd", "ef"], reward=reward, batch_size=3, mini_bs=1, lr=0.1, name="plain")
    assert clipped(groups_of_step(folder / "rollouts.jsonl", 1))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["show", str(folder), "--step", "1"]) == 0
    out = capsys.readouterr().out
    assert "colour: " not in out
    assert "its ratio was clipped" in out


def test_what_a_terminal_cannot_write_is_replaced(rollouts: Path) -> None:
    """An answer may hold any character; a terminal of another encoding than UTF-8 has few of them."""
    log = RolloutLog(rollouts)
    log.write(4, group(4, "\u6570", "b."), "trained", (0.0, 0.0), (1.0, -1.0), [TrainedTokens((-0.1,), (), ()), None])
    (rollouts.parent / "config.toml").write_text("")
    words = [sys.executable, "-m", "dapo.cli.main", "show", str(rollouts.parent), "--step", "4"]
    said = subprocess.run(words, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=True)
    assert b"? " in said.stdout
