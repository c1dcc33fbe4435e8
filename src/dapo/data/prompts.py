"""From checked rows to prompts: chat template, tokens, limits and duplicates."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Any

from dapo.data.chat import render_chat
from dapo.data.rows import Row
from dapo.data.settings import DataSettings
from dapo.errors import DataError
from dapo.records import Prompt
from dapo.wording import first_line


@dataclass(frozen=True)
class PromptSet:
    """The prompts of a run, and what became of the rows they were made from."""

    prompts: tuple[Prompt, ...]
    """At least one, in the order of the rows."""
    rows_read: int
    """Rows in the data."""
    distinct: int
    """Rows read that differ in prompt or answer."""
    dropped_duplicates: int
    """Rows left out because an earlier one has the same prompt and answer; 0 unless dedup_prompts."""
    dropped_too_long: int
    """Rows left out because their prompt has more than max_prompt_tokens tokens."""
    max_prompt_tokens: int
    """The limit that was applied."""

    def notices(self) -> list[str]:
        """What a person should know about the data, a line each."""
        lines = []
        if self.dropped_duplicates:
            lines.append(f"{self.rows_read} rows, {self.distinct} distinct problems: kept one of each")
        elif self.distinct < self.rows_read:
            lines.append(f"{self.rows_read} rows, {self.distinct} distinct problems: --dedup-prompts keeps one of each")
        if self.dropped_too_long:
            noun = "prompt" if self.dropped_too_long == 1 else "prompts"
            lines.append(f"dropped {self.dropped_too_long} {noun} over max_prompt_tokens {self.max_prompt_tokens}")
        return lines


def encode_prompts(
    rows: Sequence[Row], settings: DataSettings, tokenizer: Any, now: datetime | None = None
) -> PromptSet:
    """Turns rows into prompts with a Hugging Face tokenizer; drops, and counts, what the settings say.

    A string is encoded as it is, with the special tokens that the tokenizer puts in front. Chat messages go
    through the chat template once, which brings its own special tokens; a last turn of the assistant is left open, to
    be continued. Begin-of-sequence comes at most once, whatever a text or template writes.
    now: what a template that prints the date takes for it; the present where it is None.
    Raises DataError when the tokenizer cannot take a row, or when no prompt is left.
    """
    limit, now = settings.max_prompt_tokens, now or datetime.now()
    encoded: dict[bytes, tuple[str, tuple[int, ...]]] = {}  # a set may repeat each problem a hundred times
    prompts: list[Prompt] = []
    too_long = duplicates = 0
    for row in rows:
        key = _identity(row)
        if key not in encoded:
            encoded[key] = _encode(row, tokenizer, now)
        elif settings.dedup_prompts:
            duplicates += 1
            continue
        text, tokens = encoded[key]
        if len(tokens) > limit:
            too_long += 1
            continue
        messages = () if isinstance(row.prompt, str) else row.prompt
        prompts.append(Prompt(row.index, text, tokens, messages, row.answer, row.columns))
    if not prompts:
        raise _nothing_left(len(rows), duplicates, too_long, limit, [len(tokens) for _, tokens in encoded.values()])
    return PromptSet(tuple(prompts), len(rows), len(encoded), duplicates, too_long, limit)


def _identity(row: Row) -> bytes:
    return hashlib.blake2b(repr((row.prompt, row.answer)).encode(), digest_size=16).digest()


def _encode(row: Row, tokenizer: Any, now: datetime) -> tuple[str, tuple[int, ...]]:
    try:
        text, tokens = _text_and_tokens(row, tokenizer, now)
    except DataError:
        raise
    except Exception as error:  # a tokenizer of damaged files can fail in any way
        raise DataError(
            f"{row.place}: the model's tokenizer cannot take its prompt: {first_line(error)}",
            fix="check the tokenizer's files, and the prompt",
        ) from error
    if not tokens:
        raise DataError(f"{row.place}: the tokenizer makes no token of its prompt", fix="check the prompt")
    return text, tuple(tokens)


def _text_and_tokens(row: Row, tokenizer: Any, now: datetime) -> tuple[str, list[int]]:
    if isinstance(row.prompt, str):
        return _string(row.prompt, tokenizer)
    if tokenizer.chat_template is not None:
        text = _begun_once(render_chat(row.prompt, row.place, tokenizer, now), tokenizer)
        return text, _ids(text, tokenizer, add_special_tokens=False)
    if row.plain_prompt is not None:
        return _string(row.plain_prompt, tokenizer)
    raise DataError(
        f"{row.place} has chat messages, but the model's tokenizer has no chat template",
        fix="use an instruct model, or write the prompt as a string",
    )


def _string(prompt: str, tokenizer: Any) -> tuple[str, list[int]]:
    text = _begun_once(prompt, tokenizer)
    if tokenizer.bos_token and text.startswith(tokenizer.bos_token):
        return text, _ids(text, tokenizer, add_special_tokens=False)
    tokens = _ids(text, tokenizer, add_special_tokens=True)
    closed = _closed(tokens, tokenizer)
    if closed:  # some tokenizers close every text; what the model should continue must stay as open as it was written
        appended = closed - _closed(_ids(text, tokenizer, add_special_tokens=False), tokenizer)
        tokens = tokens[: len(tokens) - appended]
    return text, tokens


def _begun_once(text: str, tokenizer: Any) -> str:
    """The text with one begin token in front, where it writes several, or white space before one."""
    bos = tokenizer.bos_token
    return re.sub(rf"\A(?:\s*{re.escape(bos)})+", lambda _: bos, text) if bos else text


def _closed(tokens: list[int], tokenizer: Any) -> int:
    """How many end tokens stand at the end."""
    return sum(1 for _ in takewhile(lambda token: token == tokenizer.eos_token_id, reversed(tokens)))


def _ids(text: str, tokenizer: Any, *, add_special_tokens: bool) -> list[int]:
    return tokenizer(text, add_special_tokens=add_special_tokens, verbose=False)["input_ids"]


def _nothing_left(rows: int, duplicates: int, too_long: int, limit: int, lengths: list[int]) -> DataError:
    if not rows:
        return DataError("no prompts: 0 rows were read", fix="give the data at least one row with a prompt")
    dropped = f"{too_long} dropped as longer than max_prompt_tokens {limit}"
    if duplicates:
        dropped += f", {duplicates} as duplicates"
    return DataError(
        f"no prompts left: {rows} rows read, {dropped}; the shortest prompt has {min(lengths)} tokens",
        fix=f"raise --max-prompt-tokens to {min(lengths)} or more",
    )
