"""The groups of one update as a person reads them: prompt, answers side by side, and what became of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dapo.errors import DataError
from dapo.tracking.display import printable
from dapo.tracking.json_lines import read

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

Pieces = Callable[[Sequence[int]], list[str]]
"""Token ids -> the text that each adds."""

COLOURS = (
    (0.5, "", "at least 50%"),
    (0.1, "yellow", "10% to 50%"),
    (0.01, "dark_orange", "1% to 10%"),
    (0.0, "bold red", "below 1%"),
)
"""Least probability, style, and words of the legend."""
_NARROWEST = 34
"""Columns that an answer needs to be read."""


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


def group_view(line: Mapping[str, Any], pieces: Pieces | None, width: int) -> RenderableType:
    """One group: heading, prompt, and its answers side by side as far as `width` columns allow.

    pieces: colours each token by the probability with which it was drawn; None shows plain text. Raises DataError
    for a line that holds no group.
    """
    try:
        return _group_view(line, pieces, width)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"a line of update {line['step']} holds no group that can be shown ({type(error).__name__}: {error})",
            fix="remove that line from rollouts.jsonl, or choose another group with --group",
        ) from error


def _group_view(line: Mapping[str, Any], pieces: Pieces | None, width: int) -> RenderableType:
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
            _coloured(answer, pieces) if pieces else Text(printable(answer["text"])),
            title=Text(_judgement(answer)),
            subtitle=Text(_ending(answer)),
            title_align="left",
            subtitle_align="left",
            style="" if line["status"] == "trained" else "dim",
        )
        for answer in answers
    ]
    for start in range(0, len(panels), columns):
        grid.add_row(*panels[start : start + columns])
    return Group(Text(_heading(line), style="bold"), Text(printable(line["prompt"])), Text(_reference(line)), grid)


def legend() -> Text:
    """What the colours mean, and what the file does not hold."""
    from rich.text import Text

    text = Text("colour: probability of the token when it was drawn: ")
    for number, (_, style, words) in enumerate(COLOURS):
        text.append(", " if number else "")
        text.append(words, style)
    return text.append(". Ratios and clips are not in rollouts.jsonl, so they are not shown.")


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


def _coloured(answer: Mapping[str, Any], pieces: Pieces) -> Text:
    from rich.text import Text

    text = Text()
    for piece, logprob in zip(pieces(answer["tokens"]), answer["logprobs"], strict=True):
        text.append(printable(piece), _style(logprob))
    return text


def _style(logprob: float) -> str:
    probability = math.exp(logprob)
    return next(style for least, style, _ in COLOURS if probability >= least)


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


def _ending(answer: Mapping[str, Any]) -> str:
    count = len(answer["tokens"])
    how = "cut at the limit" if answer["stop_reason"] == "length" else "ended"
    return f"{count} {'token' if count == 1 else 'tokens'}, {how}"
