"""The rewards that need no file: name -> how one completion's text is scored against the row's answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dapo.records import Score
from dapo.rewards.countdown import countdown_score, require_countdown
from dapo.rewards.exact_number import exact_number_score, require_exact_number
from dapo.rewards.math_answers import math_score
from dapo.rewards.references import math_solutions

BUILT_IN: dict[str, Callable[[str, Any], Score]] = {
    "countdown": countdown_score,
    "exact_number": exact_number_score,
    "math": math_score,
}
"""Each takes (completion text, answer) and returns a score with the metric `acc`."""

ANSWER_CHECKS: dict[str, Callable[[Any], Any]] = {
    "countdown": require_countdown,
    "exact_number": require_exact_number,
    "math": math_solutions,
}
"""Each raises RewardError for an answer that no completion could ever equal."""
