"""Built-in reward `exact_number`: the last number in the text is the answer, to the last digit."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from dapo.errors import RewardError
from dapo.records import Score
from dapo.rewards.references import final_reference, short

# A minus belongs to the number unless it subtracts (5-3); a currency sign may stand between the two (-$5).
# Commas separate thousands only before exactly three digits.
_NUMBER = re.compile(
    r"(?:(?<![0-9A-Za-z.)])[-+\u2212](?:\\?[$\u20ac\u00a3\u00a5\u20b9])?)?"
    r"(?:(?<![0-9])(?<![0-9],)[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9])(?!,[0-9])|[0-9]+|(?=\.[0-9]))"
    r"(?:\.[0-9]+)?"
)


def exact_number_score(completion: str, answer: Any) -> Score:
    """1.0 when the last number in `completion` equals the number `answer` exactly, else 0.0; `acc` is the same.

    Numbers are integers and decimals: "The sum is 7." reads 7, "1,234" reads 1234, "12,34" reads 12 then 34.
    Raises RewardError when `answer` is not one such number.
    """
    gold = require_exact_number(answer)
    found = last_number(completion)
    right = float(found is not None and found == gold)
    return Score(right, {"acc": right})


def last_number(text: str) -> Decimal | None:
    """The last integer or decimal written in `text`, or None."""
    last = None
    for last in _NUMBER.finditer(text):  # noqa: B007 - only the last match is wanted
        pass
    return None if last is None else _decimal(last.group())


def require_exact_number(answer: Any) -> Decimal:
    """The number that `answer` is or states (7, "7", "#### 7", "Answer: 7"), or RewardError."""
    stated = final_reference(answer)
    text = "" if stated is None or isinstance(stated, bool) else str(stated).strip()
    if isinstance(answer, float) and answer == answer and abs(answer) != float("inf"):
        return Decimal(repr(answer))
    if _NUMBER.fullmatch(text) is None:
        raise RewardError(
            f"the answer {short(answer)} is not one number, which the reward exact_number needs",
            fix='give the row an "answer" such as 7, "-3" or "1,234.5", or use another reward',
        )
    return _decimal(text)


def _decimal(text: str) -> Decimal:
    return Decimal(re.sub(r"[^0-9.+-]", "", text.replace("\u2212", "-")))
