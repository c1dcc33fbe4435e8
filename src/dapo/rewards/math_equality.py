"""When two answers are the same. The rules are written for people in docs/rewards.md.

lists and names  math_lists takes them apart; their values come back here one by one
units            math_units drops the known ones; two different ones differ
percents, plain numbers, words   here
all other mathematics            math_expressions
"""

from __future__ import annotations

import re
from fractions import Fraction

from dapo.rewards.math_expressions import rounds_to, same_expression
from dapo.rewards.math_lists import Item, common_name, one_to_one, read_items, split_at
from dapo.rewards.math_text import compact, decimal_places_matter, has_words, normalise, plain_number

_PERCENT = re.compile(r"\s*(?:\\?%|\\text\{\s*percent\s*\}|\bpercent(?:age)?)\s*$", re.IGNORECASE)

_EXPONENT = re.compile(r"^([-+]?[\d.]+)[eE]([-+]?\d+)$")


def answers_equal(gold: str, answer: str) -> bool:
    """Whether two answers mean the same thing. Neither may be blank: nothing equals an empty answer."""
    if gold.strip() and compact(gold.strip()) == compact(answer.strip()):
        return True
    plain_gold, plain_answer = normalise(gold), normalise(answer)
    if not _units_agree(plain_gold.units, plain_answer.units):
        return False
    return _equal(plain_gold.text, plain_answer.text)


def _units_agree(gold: frozenset[str], answer: frozenset[str]) -> bool:
    """A unit may be left out, but km are not m. Neither is converted."""
    return gold <= answer or answer <= gold


def _equal(gold: str, answer: str) -> bool:
    if not gold or not answer:
        return False
    if compact(gold) == compact(answer):
        return True
    gold_items, answer_items = read_items(gold, answers_equal), read_items(answer, answers_equal)
    if not gold_items or not answer_items:
        return False
    if len(gold_items) == len(answer_items) == 1:
        return _same_single(gold_items[0], answer_items[0], gold, answer)
    return _same_list(gold_items, answer_items, gold, answer)


def _same_single(gold: Item, answer: Item, gold_text: str, answer_text: str) -> bool:
    """One value against one: `x = 5` is 5, but not `y = 5`."""
    gold_sides, answer_sides = split_at(gold_text, "equals"), split_at(answer_text, "equals")
    if len(gold_sides) == len(answer_sides) == 2 and _equal_with_percent(gold_text, answer_text):
        return True  # as equations: 2x = 10 and x = 5
    if gold.name and answer.name and common_name([gold, answer]) is None:
        return False
    if gold.name or answer.name or gold.rounded or answer.rounded:
        return _same_value(gold, answer)
    if len(gold_sides) > 1 or len(answer_sides) > 1:  # 12 \times 3 = 36: every side must be right
        return all(answers_equal(one, other) for one in gold_sides for other in answer_sides)
    return _equal_with_percent(gold_text, answer_text)


def _same_value(gold: Item, answer: Item) -> bool:
    if any(item.rounded and not rounds_to(item.value, item.rounded) for item in (gold, answer)):
        return False
    return any(answers_equal(one, other) for one in _spellings(gold) for other in _spellings(answer))


def _spellings(item: Item) -> list[str]:
    return [item.value, item.rounded] if item.rounded else [item.value]


def _same_item(gold: Item, answer: Item) -> bool:
    if gold.name and answer.name and common_name([gold, answer]) is None:
        return False
    return _same_value(gold, answer)


def _same_list(gold: list[Item], answer: list[Item], gold_text: str, answer_text: str) -> bool:
    """Lists are equal in any order; values of different names, set against values without, in theirs."""
    gold_name, answer_name = common_name(gold), common_name(answer)
    if gold_name == "" and answer_name == "" and _equal_with_percent(gold_text, answer_text):
        return True
    if gold_name is not None and answer_name is not None:
        if gold_name and answer_name and gold_name != answer_name:
            return False
        if one_to_one(gold, answer, _same_value):
            return True
        if not gold_name and not answer_name:
            return False
        return _equal_with_percent(_joined(gold), _joined(answer))  # x = \pm 2 and x = 2, x = -2
    if all(item.name for item in gold) and all(item.name for item in answer):
        return one_to_one(gold, answer, _same_item)
    if any(not item.name for item in gold) and any(not item.name for item in answer):
        return False
    return _same_in_order(gold, answer)


def _same_in_order(gold: list[Item], answer: list[Item]) -> bool:
    """`x = 5, y = 6` and `(5, 6)`."""
    if len(gold) == len(answer):
        return all(_same_value(*pair) for pair in zip(gold, answer, strict=True))
    if min(len(gold), len(answer)) > 1:
        return False
    return answers_equal(*(items[0].value if len(items) == 1 else f"({_joined(items)})" for items in (gold, answer)))


def _joined(items: list[Item]) -> str:
    return ", ".join(item.value for item in items)


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
    if {gold[:1], answer[:1]} == {"(", "\\"} and "\\{" in (gold[:2], answer[:2]):
        return False  # a set is no tuple, which math-verify takes for the same
    return same_expression(_EXPONENT.sub(r"\1 \\cdot 10^{\2}", gold), _EXPONENT.sub(r"\1 \\cdot 10^{\2}", answer))


def _numbers_equal(gold: Fraction, answer: Fraction, *, rounded: bool) -> bool:
    """Exact, except that a decimal may stand for a fraction that has no end (1/3 and 0.333333)."""
    if gold == answer:
        return True
    return rounded and abs(gold - answer) <= Fraction(1, 10**6) * abs(gold)
