"""Built-in reward `countdown`: the final expression uses every given number once and gives the target."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from dapo.errors import RewardError
from dapo.records import Score
from dapo.rewards.references import short

_PROBLEM = re.compile(r"\s*([0-9]{1,9}(?:\s+[0-9]{1,9}){0,19})\s*=\s*([0-9]{1,18})\s*")
_TOKEN = re.compile(r"[0-9]+|[-+*()]")
_SIGNS = str.maketrans({"\u00d7": "*", "\u2212": "-"})
_LONGEST = 400
"""Characters of an expression that is read; 20 numbers of nine digits with all their brackets need fewer."""
_PRECEDENCE = {"+": 1, "-": 1, "*": 2}
_OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def countdown_score(completion: str, answer: Any) -> Score:
    """1.0 when the final expression of `completion` solves the problem `answer`, else 0.0; `acc` is the same.

    answer: the numbers and the target, as `3 5 7 = 22`. Raises RewardError when it is not of that form.
    """
    numbers, target = require_countdown(answer)
    tokens = _tokens(final_expression(completion))
    literals = sorted(int(token) for token in tokens if token.isdigit())
    # Only an expression of the given numbers is worked out, so no value grows beyond their product.
    right = float(literals == sorted(numbers) and _value(tokens) == target)
    return Score(right, {"acc": right})


def require_countdown(answer: Any) -> tuple[list[int], int]:
    """The numbers and the target of `3 5 7 = 22`, or RewardError."""
    match = _PROBLEM.fullmatch(answer) if isinstance(answer, str) else None
    if match is None:
        raise RewardError(
            f"the answer {short(answer)} is not a countdown problem, which the reward countdown needs",
            fix='give the row an "answer" such as "3 5 7 = 22": up to 20 numbers, and the target after an equals sign',
        )
    return [int(number) for number in match[1].split()], int(match[2])


def final_expression(text: str) -> str:
    """The last line that is not blank, up to its first equals sign."""
    return text.rstrip().rpartition("\n")[2].partition("=")[0].strip()


def _tokens(expression: str) -> list[str]:
    """Numbers, signs and brackets; none at all when anything else is among them."""
    if len(expression) > _LONGEST:
        return []
    plain = expression.translate(_SIGNS)
    tokens = _TOKEN.findall(plain)
    return tokens if "".join(tokens) == "".join(plain.split()) else []


def _value(tokens: list[str]) -> int | None:
    """What a well-formed expression comes to, else None. Without recursion, so that brackets may nest as they like."""
    values: list[int] = []
    pending: list[str] = []
    complete = False  # whether the tokens so far end with a value
    for token in tokens:
        if complete != (token in _PRECEDENCE or token == ")"):
            return None
        if token.isdigit():
            values.append(int(token))
        elif token == "(":
            pending.append(token)
        elif token == ")":
            _apply(values, pending, 0)
            if not pending:
                return None
            pending.pop()
        else:
            _apply(values, pending, _PRECEDENCE[token])
            pending.append(token)
        complete = token.isdigit() or token == ")"
    if not complete:
        return None
    _apply(values, pending, 0)
    return None if pending else values[0]


def _apply(values: list[int], pending: list[str], precedence: int) -> None:
    """Work out the pending signs of at least this precedence, back to the last open bracket."""
    while pending and pending[-1] != "(" and _PRECEDENCE[pending[-1]] >= precedence:
        right = values.pop()
        values.append(_OPERATIONS[pending.pop()](values.pop(), right))
