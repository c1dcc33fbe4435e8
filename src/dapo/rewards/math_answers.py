"""Built-in reward `math`: find the final answer in a text and compare it with the reference as mathematics.

The rules, in the order in which they act, are written for people in docs/rewards.md.

    text --extract_answer--> "\\frac{1}{2}" --answers_equal--> 1.0 or 0.0
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from dapo.errors import RewardError
from dapo.records import Score
from dapo.rewards.math_equality import answers_equal
from dapo.rewards.math_finding import extract_answer, has_box


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
