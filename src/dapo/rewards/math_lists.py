"""Answers that name values (`x = 5`) or list several (`x=1 \\text{ or } x=2`), taken apart without reading them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_TOKEN = re.compile(
    r"(?P<open>\\begin\s*\{\w+\*?\}|\\?\{|[(\[]|\\langle)|(?P<close>\\end\s*\{\w+\*?\}|\\?\}|[)\]]|\\rangle)"
    r"|(?P<comma>[,;]\s*|\\\\\s*|\\(?:lor|land|vee|wedge|implies|iff|Rightarrow|Leftrightarrow|rightarrow|to)(?![A-Za-z])"
    r"|\\(?:text|textrm|mathrm|mbox)\s*\{\s*(?:and|or)\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z]))"
    r"|(?P<equals>(?<![\\<>!:=])=(?!=)|\\in(?![A-Za-z]))|(?P<about>\\(?:approx|simeq|doteq)(?![A-Za-z])|\u2248)|\\.",
    re.DOTALL,
)
_CASES = re.compile(
    r"\\begin\s*\{(?P<name>cases|aligned|align\*?|gathered)\}(?P<inside>.*)\\end\s*\{(?P=name)\}", re.DOTALL
)
_SUBSCRIPT = re.compile(r"_\s*(?:\{[^{}]*\}|\w)")
_NAME = re.compile(r"[^\d,;<>]*[A-Za-z][^\d,;<>]*")
_VALUE_OF = re.compile(r"(?:[fghpqFGHPQTE]|\\[A-Za-z]+|\\operatorname\{\w+\})'*\s*\([^()]*\)")
_RELATION = re.compile(
    r"\\(?:le|leq|leqslant|ge|geq|geqslant|ne|neq|equiv|mid|cup|cap|subset|subseteq|pm)(?![A-Za-z])|\b(?:not|no|minus|negative)\b",
    re.I,
)
_ANOTHER = re.compile(r"^(?!.*\\pi)[-+]?\d[\d./]*[^A-Za-z\d].*(?<![A-Za-z\\])[A-Za-z](?:_\S+)?$")


@dataclass(frozen=True)
class Item:
    """One value of an answer."""

    name: str
    """What stands before the equals sign; empty without a name."""
    value: str
    rounded: str = ""
    """What the value comes to, if `\\approx` follows it."""


def split_at(text: str, group: str) -> list[str]:
    """The text cut at the separators of this kind that stand in no bracket: `comma`, `equals` or `about`."""
    parts, depth, start = [], 0, 0
    for token in _TOKEN.finditer(text):
        depth += {"open": 1, "close": -1}.get(token.lastgroup or "", 0)
        if token.lastgroup == group and depth <= 0:
            parts.append(text[start : token.start()].strip())
            start = token.end()
    return [*parts, text[start:].strip()]


def read_items(text: str, same: Callable[[str, str], bool]) -> list[Item]:
    """The items of an answer in their order. `same` decides whether the sides of a chain agree."""
    cases = _CASES.fullmatch(text.strip())
    text = cases["inside"].replace("&", "") if cases else text
    items: list[Item] = []
    for part in filter(None, split_at(text, "comma")):
        item = _item(part, same)
        inherits = items and items[-1].name and not item.name and "=" not in part
        items.append(Item(items[-1].name, item.value, item.rounded) if inherits else item)
    return _spread(items[0]) if len(items) == 1 else items


def _item(part: str, same: Callable[[str, str], bool]) -> Item:
    exact, *about = split_at(part, "about")
    sides = split_at(exact, "equals")
    if len(about) == 1 and (is_name(exact) or not exact):
        return Item(exact, about[0])
    rounded = about[-1] if about else ""
    if len(sides) == 2 and is_name(sides[1]) and not is_name(sides[0]):
        sides.reverse()
    if len(sides) == 1 or not is_name(sides[0]):
        return Item("", exact, rounded)
    if all(_belongs(side, sides, same) for side in sides[1:-1]):
        return Item(sides[0], sides[-1], rounded)
    return Item("", exact, rounded)


def _belongs(middle: str, sides: list[str], same: Callable[[str, str], bool]) -> bool:
    """Whether a middle side of `A = ... = 12` may be a step to the end rather than another answer (`x=1 x=5`).

    Numbers must be right; formulas cannot be checked, but neither name the value again nor end in a new name.
    """
    if same(middle, sides[-1]):
        return True
    again = len(sides[0]) == 1 and re.search(rf"(?<![A-Za-z\\]){sides[0]}(?![A-Za-z])", middle)
    return bool(
        re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", middle)) and not again and not _ANOTHER.search(middle)
    )


def is_name(side: str) -> bool:
    """A left side that names a value (x, x_1, f(2), (x, y), \\angle ABC) rather than one to solve for (3x+2)."""
    if _VALUE_OF.fullmatch(side.strip()):
        return True
    members = _tuple_members(side) or [side]
    return all(
        _NAME.fullmatch(_SUBSCRIPT.sub("", member).strip()) and not _RELATION.search(member) for member in members
    )


def _tuple_members(text: str) -> list[str]:
    """The members of `(x, y)`; none of anything else."""
    text = text.strip()
    members = split_at(text[1:-1], "comma") if text.startswith("(") and text.endswith(")") else []
    return members if len(members) > 1 and all(members) else []


def _spread(item: Item) -> list[Item]:
    """`(x, y) = (1, 2)` as x = 1 and y = 2."""
    names, values = _tuple_members(item.name), _tuple_members(item.value)
    if names and len(names) == len(values):
        return [Item(name, value) for name, value in zip(names, values, strict=True)]
    return [item]


def common_name(items: list[Item]) -> str | None:
    """The name that all items share (x_1 and x_2 do), empty if none has one; None when they differ."""
    names = {re.sub(r"\s", "", _SUBSCRIPT.sub("", item.name)) for item in items}
    return names.pop() if len(names) == 1 else None


def one_to_one(gold: list[Item], answer: list[Item], same: Callable[[Item, Item], bool]) -> bool:
    """Whether every item has its own equal on the other side, in any order."""
    left = list(answer)
    for item in gold:
        match = next((index for index, other in enumerate(left) if same(item, other)), None)
        if match is None:
            return False
        del left[match]
    return not left
