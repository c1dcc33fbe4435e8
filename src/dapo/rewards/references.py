"""Reference answers as data sets write them: whole solutions, `Answer: 34`, lists, numbers of NumPy.

What can be read is read, and what no completion could ever match is refused, so that a run does not find out by
rewards that are all 0.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from dapo.errors import RewardError
from dapo.rewards.math_finding import extract_answer, has_box
from dapo.rewards.math_text import has_words, normalise

_LONGEST_WORDS = 200
"""Characters of an answer in words; longer ones are explanations that nobody repeats to the letter."""


def final_reference(answer: Any) -> Any:
    """The final answer that a text states (`#### 72`, `\\boxed{72}`, `Answer: 72`); anything else as it is."""
    if not isinstance(answer, str):
        return answer
    text = answer.strip()
    return extract_answer(text) or ("" if has_box(text) else text)


def math_solutions(answer: Any) -> list[str]:
    """The acceptable solutions in a row's answer as text. Blank ones are left out; none left is an error."""
    entries = [_solution(entry) for entry in _entries(answer) if entry is not None]
    solutions = [solution for solution in entries if normalise(solution).text.strip("{} ")]
    if not solutions:
        raise RewardError(
            f"the answer is {answer!r}, so no completion could ever be right",
            fix='give the row an "answer" that is not blank, or drop the row',
        )
    return solutions


def _entries(answer: Any) -> list[Any]:
    if hasattr(answer, "tolist"):  # NumPy scalars and arrays, as parquet readers give them
        answer = answer.tolist()
    if isinstance(answer, str) and answer.lstrip().startswith('["'):  # a list that a table kept as text
        try:
            answer = json.loads(answer)
        except ValueError:
            return [answer]
    return list(answer) if isinstance(answer, list | tuple | set) else [answer]


def _solution(entry: Any) -> str:
    if isinstance(entry, float) and not math.isfinite(entry):
        raise RewardError(f"the answer is {entry}, which nothing equals", fix="give a finite number or text")
    if hasattr(entry, "item"):
        entry = entry.item()
    if isinstance(entry, str) and re.match(r"\{\s*[\"']\w+[\"']\s*:", entry.strip()):
        entry = dict.fromkeys(re.findall(r"[\"'](\w+)[\"']\s*:", entry), "")  # a mapping that a table kept as text
    if not isinstance(entry, str | int | float | Decimal | Fraction):
        raise RewardError(
            f"the answer {short(entry)} is {_kind(entry)}, which no completion could ever equal",
            fix="give the row's answer as text, a number, or a list of which any entry will do",
        )
    text = str(final_reference(entry))
    bare = re.sub(r"\\.", "", text)
    if bare.count("{") != bare.count("}"):
        raise RewardError(
            f"the answer {short(text)} has braces that do not close, so that no box can hold it",
            fix="close its braces, or drop the row",
        )
    if has_words(text) and ("\n" in text or len(text) > _LONGEST_WORDS):
        raise RewardError(
            f"the answer {short(text)} is a text of {len(text)} characters, which no completion would repeat",
            fix='give the row only the final answer, or end its solution with "#### 72", "Answer: 72" or \\boxed{72}',
        )
    return text


def _kind(entry: Any) -> str:
    if isinstance(entry, Mapping):
        return f"a mapping with {', '.join(map(repr, list(entry)[:5]))}"
    return f"a {type(entry).__name__}"


def short(answer: Any) -> str:
    """An answer as a message shows it."""
    text = repr(answer)
    return text if len(text) <= 80 else f"{text[:60]} ... {text[-15:]}"
