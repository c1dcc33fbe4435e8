"""Chat messages as the text that the model reads, by the chat template that came with its tokenizer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from dapo.errors import DataError
from dapo.wording import first_line

ANSWERING = ("assistant", "model")
"""Roles of the one who answers; Gemma's template knows it by both names."""
_HERE = "[the answer goes on here]"
_EMPTY_THOUGHT = re.compile(r"<think>\s*</think>\s*\Z")

Messages = Sequence[Mapping[str, Any]]


def render_chat(messages: Messages, place: str, tokenizer: Any, now: datetime) -> str:
    """The messages through the template, ready for the model to write: a new turn of its own is opened, or a last
    turn that is its own already is left open behind the last character of its content.

    now: the time that a template which prints one is told. Raises DataError, naming `place`, when the template
    refuses the messages or leaves out the turn to be continued.
    """
    if messages[-1]["role"] not in ANSWERING:
        return _apply(messages, place, tokenizer, now, add_generation_prompt=True)
    *before, begun = messages
    if begun.get("tool_calls"):
        raise DataError(
            f"{place}: the last message calls a tool, so there is no text to continue",
            fix="add what the tool answered, or remove the message",
        )
    return _start_of_turn(before, begun, place, tokenizer, now) + begun["content"]


def prints_the_time(tokenizer: Any) -> bool:
    """Whether what the template writes depends on the day."""
    return "strftime_now" in str(tokenizer.chat_template)


def _start_of_turn(before: Messages, begun: Mapping[str, Any], place: str, tokenizer: Any, now: datetime) -> str:
    """Everything up to where the content of the turn stands. A stand-in is rendered in its place, since templates trim
    contents, or cut thoughts out of them."""
    stand_in = {**begun, "content": _HERE}
    text = _apply([*before, stand_in], place, tokenizer, now, add_generation_prompt=False)
    if text.count(_HERE) != 1:
        raise DataError(
            f"{place} ends with an assistant's turn, which the model's chat template does not write out as it stands, "
            "so it cannot be continued",
            fix="end with a user's message, or write the prompt as a string",
        )
    start = text[: text.index(_HERE)]
    thoughtless = _EMPTY_THOUGHT.sub("", start)
    if thoughtless == start or not before:
        return start
    # Qwen 3 puts an empty thought before an answer that has none, but one just begun may be about to think.
    opened = _apply(before, place, tokenizer, now, add_generation_prompt=True)
    return opened if opened == thoughtless else start


def _apply(messages: Messages, place: str, tokenizer: Any, now: datetime, *, add_generation_prompt: bool) -> str:
    # Templates read the clock by a function that is handed to them; one of our own stands before that.
    clock = {"strftime_now": now.strftime} if prints_the_time(tokenizer) else {}
    try:
        return tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            **clock,
        )
    except Exception as error:  # templates are programs of the model's authors and refuse in their own ways
        raise DataError(
            f"{place}: the model's chat template refuses its messages: {first_line(error)}",
            fix="check the roles and their order, or write the prompt as a string",
        ) from error
