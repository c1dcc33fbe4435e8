"""What an answer states, in one spelling, so that equal answers can be counted.

Unlike a reward this reads the text in this process. It therefore only ever looks for text patterns, and for those in
time that grows with the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from dapo.rewards.countdown import final_expression
from dapo.rewards.exact_number import last_number
from dapo.rewards.math_finding import extract_answer
from dapo.rewards.math_text import compact, normalise, plain_number

_LONG_GAP = re.compile(r"\s{16,}")
_LONGEST = 200
"""Characters of an answer that is still brought into one spelling; longer ones count as they are written."""


def math_vote(text: str) -> str | None:
    """The boxed or "Answer:" answer that the reward `math` reads; numbers by their value, others as text."""
    short = _LONG_GAP.sub(lambda gap: "\n" if "\n" in gap.group() else " ", text)
    answer = extract_answer(short)
    if answer is None or len(answer) > _LONGEST:
        return answer
    plain = normalise(answer).text
    number = plain_number(plain)
    return compact(plain) if number is None else str(number)


def exact_number_vote(text: str) -> str | None:
    """The last number in the text, which the reward `exact_number` reads: `7`, `7.0` and `+7` are one."""
    number = last_number(text)
    if number is None:
        return None
    digits = format(number, "f")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return "0" if digits == "-0" else digits


def countdown_vote(text: str) -> str | None:
    """The expression that the reward `countdown` reads, without spaces; not brought into one order."""
    return "".join(final_expression(text).split()) or None


VOTES: dict[str, Callable[[str], str | None]] = {
    "countdown": countdown_vote,
    "exact_number": exact_number_vote,
    "math": math_vote,
}
"""By built-in reward. A person's own reward does not say which answer it read, so nothing can be counted there."""
