"""The groups of one update as a person reads them: prompt, answers side by side, and what became of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dapo.errors import ConfigError, DataError
from dapo.tracking.display import printable
from dapo.tracking.json_lines import read

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_NO_RATIOS = "these answers were not trained, or their run did not record it"
Pieces = Callable[[Sequence[int]], list[str]]
"""Token ids -> the text that each adds."""

_UPPER, _LOWER = "\N{UPWARDS ARROW}", "\N{DOWNWARDS ARROW}"
"""Stand after a token that the upper, the lower clip bound held; they are seen without colours too."""
_NARROWEST = 40
"""Columns that an answer needs to be read."""


@dataclass(frozen=True, slots=True)
class Colouring:
    """What the colour of a token says."""

    meaning: str
    bands: tuple[tuple[float, str, str], ...]
    """From the highest: least value, style, and words of the legend."""
    logs: Callable[[Mapping[str, Any]], Sequence[float] | None]
    """An answer -> the logarithm of each token's value; None where it is not known."""

    def style(self, log: float) -> str:
        return next(style for least, style, _ in self.bands if log >= (math.log(least) if least else -math.inf))


def _log_ratios(answer: Mapping[str, Any]) -> list[float] | None:
    trained = answer.get("train_logprobs")
    return trained and [new - old for new, old in zip(trained, answer["logprobs"], strict=True)]


COLOURINGS: Mapping[str, Colouring] = {
    "ratio": Colouring(
        "probability of the token when it was trained over when it was drawn",
        (
            (1.5, "bold dark_orange", "1.5 and more"),
            (1.1, "yellow", "1.1 to 1.5"),
            (0.9, "", "0.9 to 1.1"),
            (0.67, "cyan", "0.67 to 0.9"),
            (0.0, "bold dodger_blue1", "below 0.67"),
        ),
        _log_ratios,
    ),
    "probability": Colouring(
        "probability of the token when it was drawn",
        (
            (0.5, "", "at least 50%"),
            (0.1, "yellow", "10% to 50%"),
            (0.01, "dark_orange", "1% to 10%"),
            (0.0, "bold red", "below 1%"),
        ),
        lambda answer: answer["logprobs"],
    ),
}
"""By the name that `dapo show --colour` gives it."""


def groups_of_step(rollouts: Path, step: int, group: int | None = None) -> list[dict[str, Any]]:
    """The lines of `rollouts.jsonl` of one update, trained groups first; with `group`, the one of that id.

    Raises DataError, naming what there is, when there is no such update or group.
    """
    last = 0
    found: list[dict[str, Any]] = []
    for line in takewhile(lambda line: line["step"] <= step, read(rollouts)):
        last = line["step"]
        if last == step:
            found.append(line)
    if not found:
        known = f"the last update before it is {last}" if last else "no update comes before it"
        raise DataError(f"update {step} is not in {rollouts}; {known}", fix="name an update of the run, from 1")
    if group is not None:
        ids = ", ".join(str(line.get("group")) for line in found)
        found = [line for line in found if line.get("group") == group]
        if not found:
            raise DataError(f"group {group} is not in update {step}", fix=f"its groups are {ids}")
    return sorted(found, key=lambda line: line.get("status") != "trained")


def colouring_of(lines: Sequence[Mapping[str, Any]], wanted: str | None = None) -> Colouring:
    """The wanted colouring; None: by ratio where the lines hold ratios, else by probability.

    Raises ConfigError for ratios that they do not hold.
    """
    known = any(answer.get("train_logprobs") for answer in _answers(lines))
    if wanted == "ratio" and not known:
        raise ConfigError(f"--colour is ratio but {_NO_RATIOS}", fix="leave --colour out, or use probability")
    return COLOURINGS[wanted or ("ratio" if known else "probability")]


def clipped(lines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether any token of the lines was clipped."""
    return any(answer.get("clipped_upper") or answer.get("clipped_lower") for answer in _answers(lines))


def _answers(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The answers of all lines. A damaged line adds none: it is named when it is shown."""
    found = [line.get("completions") for line in lines]
    return [answer for answers in found if isinstance(answers, list) for answer in answers if isinstance(answer, dict)]


def group_view(
    line: Mapping[str, Any], pieces: Pieces | None, width: int, colouring: Colouring = COLOURINGS["probability"]
) -> RenderableType:
    """One group: heading, prompt, and its answers side by side as far as `width` columns allow.

    pieces: splits answers into tokens, which are coloured and marked where they were clipped; None shows plain
    text. Raises DataError for a line that holds no group.
    """
    try:
        return _group_view(line, pieces, width, colouring)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"a line of update {line['step']} holds no group that can be shown ({type(error).__name__}: {error})",
            fix="remove that line from rollouts.jsonl, or choose another group with --group",
        ) from error


def _group_view(line: Mapping[str, Any], pieces: Pieces | None, width: int, colouring: Colouring) -> RenderableType:
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    answers = line["completions"]
    columns = max(1, min(len(answers), width // _NARROWEST))
    grid = Table.grid(expand=True)
    for _ in range(columns):
        grid.add_column(ratio=1)
    panels = [
        Panel(
            _tokens(answer, pieces, colouring) if pieces else Text(printable(answer["text"])),
            title=Text(_judgement(answer)),
            subtitle=Text(_ending(answer, line["status"])),
            title_align="left",
            subtitle_align="left",
            style="" if line["status"] == "trained" else "dim",
        )
        for answer in answers
    ]
    for start in range(0, len(panels), columns):
        grid.add_row(*panels[start : start + columns])
    return Group(Text(_heading(line), style="bold"), Text(printable(line["prompt"])), Text(_reference(line)), grid)


def legend(lines: Sequence[Mapping[str, Any]], colouring: Colouring | None) -> Text:
    """What the colours and marks of these lines mean, and what the file does not hold. colouring None: no colours."""
    from rich.text import Text

    text = Text()
    if colouring is not None:
        text.append(f"colour: {colouring.meaning}: ")
        for number, (_, style, words) in enumerate(colouring.bands):
            text.append(", " if number else "")
            text.append(words, style)
        text.append("\n")
    if clipped(lines):
        text.append(f"{_UPPER} or {_LOWER} after a token: its ratio was clipped at the upper or the lower bound")
    elif colouring is COLOURINGS["probability"] and not any(answer.get("train_logprobs") for answer in _answers(lines)):
        text.append(f"no ratios and clips: {_NO_RATIOS}")
    else:
        text.append("no token was clipped")
    return text


def token_pieces(decode: Callable[[Sequence[int]], str], tokens: Sequence[int]) -> list[str]:
    """The text that each token adds to those before it.

    A character made of several tokens comes with its last one. Joined, the pieces are the decoded answer.
    """
    pieces: list[str] = []
    context = shown = 0  # a token is decoded after the piece before it: some tokenizers drop an answer's first space
    for at in range(len(tokens)):
        before, now = decode(tokens[context:shown]), decode(tokens[context : at + 1])
        whole = not now.endswith("\N{REPLACEMENT CHARACTER}") or at == len(tokens) - 1
        if whole and len(now) >= len(before):
            pieces.append(now[len(before) :])
            context, shown = shown, at + 1
        else:
            pieces.append("")
    return pieces


def _tokens(answer: Mapping[str, Any], pieces: Pieces, colouring: Colouring) -> Text:
    """The answer token by token: coloured, and underlined with an arrow behind it where the clip held it."""
    from rich.text import Text

    marks = dict.fromkeys(answer.get("clipped_upper") or (), _UPPER)
    marks |= dict.fromkeys(answer.get("clipped_lower") or (), _LOWER)
    split, logs = pieces(answer["tokens"]), colouring.logs(answer)
    styles = [""] * len(split) if logs is None else [colouring.style(log) for log in logs]
    text = Text()
    for place, (piece, style) in enumerate(zip(split, styles, strict=True)):
        shown = printable(piece)
        if place in marks:
            word = shown.rstrip("\n")  # the arrow stays on the token's own line
            core = word.lstrip(" ") or word
            text.append(word[: -len(core) or None], style).append(core, f"{style} underline")
            text.append(marks[place], f"{style} bold")
            shown = shown[len(word) :]
        text.append(shown, style)
    return text


def _heading(line: Mapping[str, Any]) -> str:
    words = {
        "trained": "trained",
        "constant": "dropped: its answers all score the same",
        "surplus": "dropped: the update was full",
        "stale": "dropped: it grew too old",
    }
    status = words.get(line["status"], line["status"])
    return f"group {line['group']}, row {line['prompt_index']}, weights {line['version']}: {status}"


def _reference(line: Mapping[str, Any]) -> str:
    return "" if line["answer"] is None else printable(f"reference answer: {line['answer']}")


def _judgement(answer: Mapping[str, Any]) -> str:
    """`reward 1 - 0.25, advantage +0.52`; a group that was not trained has the reward alone."""
    words = f"reward {answer['reward']:g}"
    if answer["penalty"]:
        words += f" - {-answer['penalty']:g}"
    return words if answer["advantage"] is None else f"{words}, advantage {answer['advantage']:+.2f}"


def _ending(answer: Mapping[str, Any], status: str) -> str:
    """Length and end, and how many tokens were clipped up and down; an answer that its update left out says so."""
    count = len(answer["tokens"])
    words = [f"{count} {'token' if count == 1 else 'tokens'}"]
    words.append("cut at the limit" if answer["stop_reason"] == "length" else "ended")
    if status == "trained" and "train_logprobs" in answer and answer["train_logprobs"] is None:
        words.insert(0, "untrained")
    marks = (("clipped_upper", _UPPER), ("clipped_lower", _LOWER))
    held = [f"{len(answer[name])}{mark}" for name, mark in marks if answer.get(name)]
    return ", ".join([*words, " ".join(held)] if held else words)
