"""Answers as text: one spelling for the many ways to write the same LaTeX, and the plain numbers among them."""

from __future__ import annotations

import re
from fractions import Fraction

_SYMBOLS = str.maketrans(
    {
        "\u2212": "-", "\u2013": "-", "\u00d7": "\\times ", "\u00f7": "\\div ", "\u00b7": "\\cdot ",
        "\u03c0": "\\pi ", "\u221e": "\\infty ", "\u2264": "\\le ", "\u2265": "\\ge ", "\u00b1": "\\pm ",
        "\u00b0": "^\\circ ", "\u221a": "\\sqrt", "\u00a0": " ", "\u202f": " ", "\u2009": " ", "~": " ",
    }
)  # fmt: skip
_WRAPPERS = r"text|textbf|textrm|textit|textnormal|mathrm|mathbf|mathit|mbox|boldsymbol|bm|boxed|fbox"
_WRAPPER = re.compile(rf"\\(?:{_WRAPPERS})\s*(?=\{{)")
_DELIMITERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("`", "`"))
_CURRENCY = re.compile(
    r"^(-?)\s*(?:\\\$|[$\u20ac\u00a3\u00a5\u20b9])\s*(?=-?[\d.])|(?:\\\$|[\u20ac\u00a3\u00a5\u20b9])$"
)
_LATEX_UNIT = re.compile(
    r"(?<=[\d})A-Za-z.])\s*\\(?:text|textrm|mathrm|mbox|textnormal)\{(?!\s*(?:and|or|[eid])\s*\})"
    r"[\sA-Za-z./\u00b5]*[A-Za-z][\sA-Za-z./\u00b5]*[\^\d]*\}\s*(?:\^\{?-?\d\}?)?$"
)
_WORD_UNIT = re.compile(
    r"^([-+]?[\d.,\s]*\d)"
    r"(?: (?!(?:and|or|sqrt|pi)\b)[A-Za-z][A-Za-z/.]{1,14}(?: [A-Za-z/.]{1,15}){0,2}|(?:[cmk]m|[mk]g|ml|ft|mph))"
    r"(?:\^\{?\d\}?)?$"
)
_DEGREES = re.compile(r"\s*\^\s*(?:\\circ|\{\s*\\circ\s*\})\s*(?:C|F)?$|\s*\\degree$")
_THOUSANDS = re.compile(r"(?<![\d,.])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")
_SPACED_THOUSANDS = re.compile(r"^([-+]?[1-9]\d{0,2})((?: \d{3})+)((?:\.\d+)?)(?![\d ])")
_BRACKET = re.compile(r"[(\[]|\\\{|\\left|^\s*\{")
_COMMANDS = re.compile(r"\\(?:begin|end|operatorname|mathbb|mathcal)\s*\{[^{}]*\}|\\[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z]{3,}")
_MATH_WORDS = {"and", "sqrt", "infinity"}

_DECIMAL = re.compile(r"([-+]?)(?=\.?\d)(\d*)(?:\.(\d*))?(?:[eE]([-+]?\d{1,3}))?", re.ASCII)
_RATIO = re.compile(
    r"([-+]?)\s*(?:(\d+)\s*)?\\frac\s*\{\s*([-+]?\d+)\s*\}\s*\{\s*([-+]?\d+)\s*\}|([-+]?)(?:(\d+)\s+)?(\d+)\s*/\s*(\d+)",
    re.ASCII,
)


def normalise(text: str) -> str:
    """The answer without delimiters, bold, currency, units, spacing commands and thousands separators."""
    text = text.translate(_SYMBOLS)
    text = re.sub(r"\\(?:displaystyle|limits|!|left(?![A-Za-z])|right(?![A-Za-z]))\s?", "", text)
    text = re.sub(r"\\[dtc]frac(?![A-Za-z])", r"\\frac", text)
    text = re.sub(r"(?<=\d)\s*\{,\}\s*(?=\d)", ",", text)
    text = re.sub(r"(?<!\\)\\(?:[,;: ]|q?quad(?![A-Za-z]))", " ", text)
    text = re.sub(r"\\?sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    previous = None
    while previous != text:  # each pass removes something or ends
        previous = text
        text = _unwrapped(re.sub(r"\s+", " ", text).strip())
    return _without_thousands(text)


def _unwrapped(text: str) -> str:
    """One layer less of what surrounds an answer without being part of it."""
    text = text.rstrip(".,;: ")
    for opening, closing in _DELIMITERS:
        if text.startswith(opening) and text.endswith(closing) and len(text) >= len(opening + closing):
            inner = text[len(opening) : -len(closing)]
            if opening not in inner:
                return inner
    wrapper = _WRAPPER.match(text)
    if wrapper and _closing_brace(text, wrapper.end()) == len(text) - 1:
        return text[wrapper.end() + 1 : -1]
    if re.fullmatch(r"\([A-Za-z]\)", text):  # a choice: (B)
        return text[1]
    text = _CURRENCY.sub(lambda match: match.group(1) or "", text)
    text = _DEGREES.sub("", text)
    text = _LATEX_UNIT.sub("", text)
    if not re.search(r"percent", text, re.IGNORECASE):
        text = _WORD_UNIT.sub(r"\1", text)
    return text


def _closing_brace(text: str, start: int) -> int:
    """Index of the brace that closes the one at `start`, or -1."""
    depth = 0
    for brace in re.finditer(r"\\.|[{}]", text[start:]):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0:
            return start + brace.start()
    return -1


def _without_thousands(text: str) -> str:
    """Commas go when every one stands before exactly three digits and nothing is bracketed; else all stay.

    So 115,000 is one number, 12,34 and (1,234) are two each. A comma that stays gets a space, because the LaTeX
    reader takes "0,1" for a decimal in places.
    """
    text = _SPACED_THOUSANDS.sub(lambda m: m.group(1) + m.group(2).replace(" ", "") + m.group(3), text)
    joined = _THOUSANDS.sub(lambda match: match.group().replace(",", ""), text)
    if "," not in joined and not _BRACKET.search(text):
        return joined
    return re.sub(r",(?=\d)", ", ", text)


def compact(text: str) -> str:
    """For comparing as text: case and the spaces around punctuation do not count."""
    return re.sub(r"\s*([^\w\s])\s*", r"\1", text).casefold()


def has_words(text: str) -> bool:
    """Whether the answer is language (three letters in a row outside a command), which is compared as text.

    Read as mathematics, `east` would be e·a·s·t and equal to `seat`. Digits in another base, times and numbers
    that merely stand side by side are likewise not what a LaTeX reader makes of them.
    """
    bare = _COMMANDS.sub(" ", text)
    if any(word.lower() not in _MATH_WORDS for word in _WORD.findall(bare)):
        return True
    return re.search(r"\d\s*_|\d\s*:\s*\d|\d\s+\d", text) is not None


def plain_number(text: str) -> Fraction | None:
    """The exact value of an integer, decimal, fraction or mixed number; None for any other text."""
    if len(text) > 1000:
        return None
    decimal = _DECIMAL.fullmatch(text)
    if decimal:
        sign, whole, part, exponent = decimal.groups()
        digits = f"{whole}{part or ''}" or "0"
        value = Fraction(int(digits)) * Fraction(10) ** (int(exponent or 0) - len(part or ""))
        return -value if sign == "-" else value
    ratio = _RATIO.fullmatch(text)
    return _ratio_value(*ratio.groups()) if ratio else None


def _ratio_value(*groups: str | None) -> Fraction | None:
    sign, whole, over, under = groups[:4] if groups[2] is not None else groups[4:]
    if over is None or under is None or int(under) == 0:
        return None
    value = int(whole or 0) + Fraction(int(over), int(under))
    return -value if sign == "-" else value


def decimal_places_matter(gold: str, answer: str) -> bool:
    """Whether exactly one of two plain numbers is a decimal and the other a fraction without an end."""
    texts = (gold, answer)
    return any("." in decimal and _never_ends(fraction) for decimal, fraction in (texts, texts[::-1]))


def _never_ends(text: str) -> bool:
    value = plain_number(text)
    if value is None:
        return False
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest != 1
