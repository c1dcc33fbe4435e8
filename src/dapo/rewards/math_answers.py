"""Built-in reward `math`: find the final answer in a text and compare it with the reference as mathematics.

The rules, in the order in which they act, are written for people in docs/rewards.md.

    text --extract_answer--> "\\frac{1}{2}" --answers_equal--> 1.0 or 0.0
"""

from __future__ import annotations

from typing import Any

from dapo.records import Score
from dapo.rewards.math_equality import answers_equal
from dapo.rewards.math_finding import extract_answer
from dapo.rewards.references import math_solutions


def math_score(completion: str, answer: Any) -> Score:
    """1.0 when the final answer of `completion` equals one of the solutions in `answer`, else 0.0.

    `answer` is a str, int or float, or a list of such solutions of which any will do. The metric `acc` is the
    same number. Raises RewardError when `answer` holds no solution at all.
    """
    solutions = math_solutions(answer)
    found = extract_answer(completion)
    right = float(found is not None and any(answers_equal(solution, found) for solution in solutions))
    return Score(right, {"acc": right})
