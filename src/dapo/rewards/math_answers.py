"""Built-in reward `math`: find the final answer in a text and compare it with the reference as mathematics.

The rules, in the order in which they act, are written for people in docs/rewards.md.

    text --extract_answer--> "\\frac{1}{2}" --normalise--> plain LaTeX --equal?--> 1.0 or 0.0

Text, plain numbers, percents and names are compared here; everything else goes to math_expressions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from dapo.errors import RewardError
from dapo.records import Score
from dapo.rewards.math_expressions import same_expression
from dapo.rewards.math_finding import extract_answer, has_box
from dapo.rewards.math_text import compact, decimal_places_matter, has_words, normalise, plain_number

_EQUALS = re.compile(r"(?<![\\<>!:=])=(?!=)")
_PERCENT = re.compile(r"\s*(?:\\?%|\\text\{\s*percent\s*\}|\bpercent(?:age)?)\s*$", re.IGNORECASE)
_SUBSCRIPT = re.compile(r"_(?:\{[^{}]*\}|\w)")
_NAME = re.compile(r"[^\d,;<>]*[A-Za-z][^\d,;<>]*")


def math_score(completion: str, answer: Any) -> Score:
    """1.0 when the final answer of `completion` equals one of the solutions in `answer`, else 0.0.

    `answer` is a str, int or float, or a list of such solutions of which any will do. The metric `acc` is the
    same number. Raises RewardError when `answer` holds no solution at all.
    """
    solutions = math_solutions(answer)
    found = extract_answer(completion)
    right = float(found is not None and any(answers_equal(solution, found) for solution in solutions))
    return Score(right, {"acc": right})


def math_solutions(answer: Any) -> list[str]:
    """The acceptable solutions in a row's answer as text. Blank ones are left out; none left is an error."""
    entries: Iterable[Any] = answer if isinstance(answer, list | tuple | set) else [answer]
    if hasattr(answer, "tolist"):  # NumPy scalars and arrays, as parquet readers give them
        listed = answer.tolist()
        entries = listed if isinstance(listed, list) else [listed]
    solutions = [_solution(entry) for entry in entries if entry is not None]
    solutions = [solution for solution in solutions if solution]
    if not solutions:
        raise RewardError(
            f"the answer is {answer!r}, so no completion could ever be right",
            fix='give the row an "answer" that is not blank, or drop the row',
        )
    return solutions


def _solution(entry: Any) -> str:
    if isinstance(entry, float) and not math.isfinite(entry):
        raise RewardError(f"the answer is {entry}, which nothing equals", fix="give a finite number or text")
    text = str(entry).strip()
    return (extract_answer(text) or text) if has_box(text) else text


def answers_equal(gold: str, answer: str) -> bool:
    """Whether two answers mean the same thing. Neither may be blank: nothing equals an empty answer."""
    if gold.strip() and compact(gold.strip()) == compact(answer.strip()):
        return True
    return _equal(normalise(gold), normalise(answer))


def _equal(gold: str, answer: str) -> bool:
    if not gold or not answer:
        return False
    if compact(gold) == compact(answer):
        return True
    gold_sides, answer_sides = _EQUALS.split(gold), _EQUALS.split(answer)
    if len(answer_sides) > 1 and len(gold_sides) == 1:
        return _equals_chain(gold, answer_sides)
    if len(gold_sides) > 1 and len(answer_sides) == 1:
        return _is_name(gold_sides[0]) and _equal(gold_sides[-1].strip(), answer)
    return _equal_with_percent(gold, answer)


def _equals_chain(value: str, sides: list[str]) -> bool:
    """`x = ... = 5` against 5: after a name only the last side counts; without one every side must be right."""
    if _is_name(sides[0]):
        return _equal(value, sides[-1].strip())
    return all(_equal(value, side.strip()) for side in sides)


def _is_name(side: str) -> bool:
    """A left side that names a value (x, x_1, f(x), \\angle ABC) rather than being one to solve for (3x+2)."""
    return _NAME.fullmatch(_SUBSCRIPT.sub("", side).strip()) is not None


def _equal_with_percent(gold: str, answer: str) -> bool:
    """28% equals 28 and 0.28; against another percentage only the numbers before the signs count."""
    bare_gold, bare_answer = _PERCENT.sub("", gold), _PERCENT.sub("", answer)
    gold_is_percent, answer_is_percent = bare_gold != gold, bare_answer != answer
    if _equal_values(bare_gold, bare_answer):
        return True
    if gold_is_percent and not answer_is_percent:
        return _equal_values(f"\\frac{{{bare_gold}}}{{100}}", bare_answer)
    if answer_is_percent and not gold_is_percent:
        return _equal_values(bare_gold, f"\\frac{{{bare_answer}}}{{100}}")
    return False


def _equal_values(gold: str, answer: str) -> bool:
    gold_number, answer_number = plain_number(gold), plain_number(answer)
    if gold_number is not None and answer_number is not None:
        rounded = decimal_places_matter(gold, answer)
        return _numbers_equal(gold_number, answer_number, rounded=rounded)
    if has_words(gold) or has_words(answer):
        return compact(gold) == compact(answer)
    return same_expression(gold, answer)


def _numbers_equal(gold: Fraction, answer: Fraction, *, rounded: bool) -> bool:
    """Exact, except that a decimal may stand for a fraction that has no end (1/3 and 0.333333)."""
    if gold == answer:
        return True
    return rounded and abs(gold - answer) <= Fraction(1, 10**6) * abs(gold)
