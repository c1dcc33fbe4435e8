"""`dapo show`: the groups of an update, read from a real run's folder or a written one."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dapo.cli.main import main
from dapo.dashboard.show import group_view, groups_of_step, legend, token_pieces
from dapo.errors import DataError
from dapo.records import Completion, Group, Prompt, Score
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
    log.write(2, group(1, "three.", "four."), "constant", None, None)
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


def test_tokens_are_coloured_by_the_probability_they_were_drawn_with() -> None:
    # exp(-0.1) = .90, exp(-1) = .37, exp(-3) = .05, exp(-7) = .0009
    answer = {
        "text": "abcd",
        "tokens": [0, 1, 2, 3],
        "logprobs": [-0.1, -1.0, -3.0, -7.0],
        "stop_reason": "stop",
        "reward": 1.0,
        "penalty": None,
        "advantage": None,
    }
    line = {"group": 0, "prompt_index": 0, "version": 0, "status": "trained", "prompt": "p", "answer": None}
    text = printed(group_view({**line, "completions": [answer]}, lambda tokens: list("abcd"), 40), colours=True)
    assert "a\x1b[33mb\x1b[0m\x1b[38;5;208mc\x1b[0m\x1b[1;31md\x1b[0m" in text


def test_the_legend_names_the_colours_and_what_cannot_be_shown() -> None:
    text = printed(legend(), width=200)
    assert "at least 50%, 10% to 50%, 1% to 10%, below 1%" in text
    assert "Ratios and clips are not in rollouts.jsonl" in text


def test_a_hostile_answer_cannot_move_the_cursor(tmp_path: Path) -> None:
    log = RolloutLog(tmp_path / "rollouts.jsonl")
    log.write(1, group(0, "\x1b[2J[bold]x[/bold]", "\u202eabc", reference="\x1b]0;t\x07"), "constant", None, None)
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
    assert "colour: probability" in out
    settings = folder / "config.toml"
    settings.write_text(settings.read_text().replace("ckpt = ", "ckpt = '/nowhere' # "))
    assert main(["show", str(folder), "--step", "1"]) == 0
    shown = capsys.readouterr()
    assert "answers are not coloured: ckpt /nowhere does not exist" in shown.err
    assert "colour: probability" not in shown.out
