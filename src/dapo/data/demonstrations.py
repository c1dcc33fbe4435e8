"""Demonstrations: rows that come with the answer that a model shall learn to write."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dapo.data.rows import Row
from dapo.errors import DataError, ModelError
from dapo.records import Completion, Prompt
from dapo.wording import first_line


@dataclass(frozen=True)
class Demonstration:
    """A prompt and the answer to learn."""

    prompt: Prompt
    completion: Completion
    """The solution's tokens and the end token. Their log-probabilities are 0: nobody drew them, they are given."""


@dataclass(frozen=True)
class DemonstrationSet:
    """The demonstrations of a run, and how many were left out."""

    demonstrations: tuple[Demonstration, ...]
    """At least one, in the order of the rows."""
    dropped_too_long: int
    max_tokens: int
    """The limit that was applied to prompt and answer together."""
    source: str
    """Where the rows came from."""

    def notices(self) -> list[str]:
        """What a person should know, a line each."""
        if not self.dropped_too_long:
            return []
        noun = "demonstration" if self.dropped_too_long == 1 else "demonstrations"
        return [f"{self.source}: dropped {self.dropped_too_long} {noun} over max_tokens {self.max_tokens}"]


def check_solutions(rows: Sequence[Row], key: str) -> None:
    """Raise DataError for the first row whose column `key` is no text to learn. Needs no tokenizer."""
    for row in rows:
        solution = row.columns.get(key)
        if isinstance(solution, str) and solution:
            continue
        raise DataError(
            f"{row.place} has no solution: {_problem(row, key)}",
            fix="write the answer there or remove the row" if key in row.columns else _other_columns(row),
        )


def encode_demonstrations(
    prompts: Sequence[Prompt], key: str, tokenizer: Any, max_tokens: int, *, source: str
) -> DemonstrationSet:
    """Turns prompts into demonstrations by the column `key` of their rows, which `check_solutions` has seen.

    Prompt and solution are encoded apart, as generation will meet them, so that the border between them is one of
    tokens. The answer ends with the tokenizer's end token, once. Raises ModelError for a tokenizer without one, and
    DataError when it cannot take a solution or when all demonstrations are too long; `source` says whose they are.
    """
    if tokenizer.eos_token_id is None:
        raise ModelError("the model's tokenizer has no end token, so no answer could end", fix="set its eos_token")
    all_of_them = [Demonstration(prompt, _completion(prompt, key, tokenizer)) for prompt in prompts]
    lengths = [len(each.prompt.tokens) + len(each.completion.tokens) for each in all_of_them]
    kept = tuple(each for each, length in zip(all_of_them, lengths, strict=True) if length <= max_tokens)
    if not kept:
        raise DataError(
            f"no demonstrations left of {source}: all {len(lengths)} have more than {max_tokens} tokens (max_tokens); "
            f"the shortest has {min(lengths)}",
            fix="raise max_tokens as far as the model's context allows, or use shorter ones",
        )
    return DemonstrationSet(kept, len(all_of_them) - len(kept), max_tokens, source)


def _completion(prompt: Prompt, key: str, tokenizer: Any) -> Completion:
    end = re.escape(tokenizer.eos_token)
    text = re.sub(rf"{end}(?:\s*{end})*\s*\Z", "", prompt.row[key])  # it is put there below, once
    try:
        tokens = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    except Exception as error:  # half of a surrogate pair, or a tokenizer of damaged files
        raise DataError(
            f"row {prompt.index}: the model's tokenizer cannot take its {key}: {first_line(error)}",
            fix="remove invalid characters, or check the tokenizer's files",
        ) from error
    tokens = [*tokens, tokenizer.eos_token_id]
    return Completion(tuple(tokens), (0.0,) * len(tokens), text, "stop")


def _problem(row: Row, key: str) -> str:
    if key not in row.columns:
        return f"there is no column {key!r}, only {', '.join(map(str, row.columns)) or 'none'}"
    value = row.columns[key]
    return f"its {key} is empty" if value in ("", None) else f"its {key} is of type {type(value).__name__}, not a text"


def _other_columns(row: Row) -> str:
    texts = [str(name) for name, value in row.columns.items() if isinstance(value, str) and value and name != "prompt"]
    hint = f", such as {' or '.join(texts)}" if texts else ""
    return f"name the column with the answers by --solution-key{hint}"
