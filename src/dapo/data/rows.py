"""One shape for the rows of every source: a prompt, perhaps an answer, and everything else as it was."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dapo.data.readers import RawRow
from dapo.errors import DataError
from dapo.wording import nearest

_CHAT = re.compile(r"""\s*\[?\s*\{(?=.*["']role["']\s*:)(?=.*["']content["']\s*:)""", re.DOTALL)
"""What the text of chat messages looks like, or that of a single one."""
_OBJECTS = ("reward_model", "extra_info")
"""Columns of DAPO-Math-17k that hold objects, which a csv file can only hold as text."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row that was checked, not yet turned into tokens."""

    index: int
    """Position in the data as read, from 0."""
    place: str
    """Where a person finds it: source and line or row number, counted from 1."""
    prompt: str | tuple[Mapping[str, Any], ...]
    """A string to continue, or chat messages with `role` and `content`."""
    answer: Any
    """The reference answer, None if the row has none."""
    columns: Mapping[str, Any]
    """The whole row as it was read."""
    plain_prompt: str | None = None
    """What to ask a model without chat template; procedural tasks have it, files do not."""


def check_row(raw: RawRow, index: int, source: str) -> Row:
    """The row in the one shape, or DataError naming its place.

    The answer is the first that is not null of `answer`, `solutions`, `reward_model.ground_truth` and `ground_truth`;
    0, false and "" are answers.
    """
    place = f"{source} {raw.place}"
    try:
        columns = {name: _object(value) if name in _OBJECTS else value for name, value in raw.columns.items()}
        prompt, answer = _prompt(columns, place), _answer(columns, place)
    except RecursionError as error:
        raise DataError(f"{place} is nested too deeply", fix="make the prompt and answer flat") from error
    return Row(index, place, prompt, answer, columns)


def _prompt(columns: Mapping[str, Any], place: str) -> str | tuple[Mapping[str, Any], ...]:
    prompt = _without_arrays(columns.get("prompt"))
    if prompt is None:
        raise _no_prompt(columns, place)
    if isinstance(prompt, str):
        prompt = _written_out(prompt, place)
    if isinstance(prompt, str):
        if not prompt.strip():
            raise DataError(f"{place} has an empty prompt", fix="write the problem there or remove the row")
        return _valid_text(prompt, f"{place}: the prompt")
    if isinstance(prompt, list):
        return _messages(prompt, place)
    raise DataError(
        f"{place}: prompt is of type {type(prompt).__name__}",
        fix='write a string, or chat messages such as [{"role": "user", "content": "..."}]',
    )


def _no_prompt(columns: Mapping[str, Any], place: str) -> DataError:
    if "prompt" in columns:
        return DataError(f"{place}: prompt is null", fix="write the problem there or remove the row")
    known = ", ".join(str(key) for key in columns) or "none"
    guess = nearest("prompt", columns)
    hint = f"rename {guess!r} to 'prompt'" if guess else "rename the column with the problem to 'prompt'"
    return DataError(f"{place} has no prompt; its columns: {known}", fix=f"{hint}, or use a --dataset-loader-fn")


def _messages(prompt: list[Any], place: str) -> tuple[Mapping[str, Any], ...]:
    if not prompt:
        raise DataError(f"{place}: prompt is an empty list", fix="give it at least one chat message")
    messages = []
    for number, message in enumerate(prompt, start=1):
        where = f"{place}: message {number} of the prompt"
        if not isinstance(message, Mapping):
            raise DataError(f"{where} is of type {type(message).__name__}", fix='write {"role": ..., "content": ...}')
        messages.append(_message(message, where))
    if not any(message["content"].strip() for message in messages):
        raise DataError(f"{place} has an empty prompt", fix="write the problem there or remove the row")
    return tuple(messages)


def _message(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    """With its content as one text. Columnar files fill the keys that only other rows have with null, and templates
    ask whether a key exists, so these are left out."""
    known = {key: value for key, value in message.items() if value is not None}
    if isinstance(known.get("content"), list):
        known["content"] = _joined(known["content"], where)
    for key in ("role", "content"):
        if not isinstance(known.get(key), str):
            found = f"a {key} of type {type(message[key]).__name__}" if key in message else f"no {key}"
            raise DataError(f"{where} has {found}", fix=f"give it a {key} that is a string")
        _valid_text(known[key], where)
    if not known["role"]:
        raise DataError(f"{where} has an empty role", fix="write system, user or assistant")
    return known


def _joined(parts: list[Any], where: str) -> str:
    """The text of a content in parts, `[{"type": "text", "text": ...}]`, as templates join it."""
    texts = []
    for number, part in enumerate(parts, start=1):
        text = part.get("text") if isinstance(part, Mapping) and part.get("type", "text") == "text" else part
        if not isinstance(text, str):
            raise DataError(
                f"{where} has a content of type list whose part {number} is no text",
                fix='give it a content that is a string, or parts such as {"type": "text", "text": ...}',
            )
        texts.append(text)
    return "".join(texts)


def _written_out(prompt: str, place: str) -> Any:
    """The messages of a chat that a table holds as text; any other text as it is."""
    if not _CHAT.match(prompt):
        return prompt
    value = _parsed(prompt)
    if value is None and prompt.lstrip().startswith("["):
        raise DataError(
            f"{place}: prompt looks like a list of chat messages but cannot be read as one",
            fix="write it as JSON, or begin a prompt that is plain text with something else than [{",
        )
    messages = value if isinstance(value, list) else [value]
    chat = all(isinstance(message, Mapping) and {"role", "content"} <= message.keys() for message in messages)
    return value if chat else prompt


def _object(value: Any) -> Any:
    """The object that a table holds as text; anything else as it is."""
    found = _parsed(value) if isinstance(value, str) and value.lstrip().startswith("{") else None
    return found if isinstance(found, Mapping) else value


def _parsed(text: str) -> Any:
    """A value written in JSON, or as Python prints it; None where it is neither."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text.strip())
        except (ValueError, SyntaxError, MemoryError, TypeError):
            continue
    return None


def _answer(columns: Mapping[str, Any], place: str) -> Any:
    for key in ("answer", "solutions"):
        answer = _without_arrays(columns.get(key))
        if answer is not None:
            return answer
    graded = columns.get("reward_model")
    if graded is None or (isinstance(graded, Mapping) and graded.get("ground_truth") is None):
        return _without_arrays(columns.get("ground_truth"))
    if not isinstance(graded, Mapping):
        raise DataError(
            f"{place}: reward_model is of type {type(graded).__name__}",
            fix='write {"ground_truth": ...}, or give the row an answer',
        )
    return _without_arrays(graded.get("ground_truth"))


def _without_arrays(value: Any) -> Any:
    """Arrays, array scalars and tuples of loader functions as plain lists and numbers; the rest unchanged."""
    if isinstance(value, list | tuple):
        return [_without_arrays(item) for item in value]
    return _without_arrays(value.tolist()) if hasattr(value, "tolist") else value


def _valid_text(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{where} contains half of a surrogate pair", fix="remove the invalid character") from error
    return text
