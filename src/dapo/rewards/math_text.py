"""Answers as text: one spelling for the many ways to write the same LaTeX, and the plain numbers among them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from dapo.rewards.math_units import clock_time, drop_units, scale_word

_SYMBOLS = str.maketrans(
    {
        "\u2212": "-", "\u2013": "-", "\u00d7": "\\times ", "\u00f7": "\\div ", "\u00b7": "\\cdot ",
        "\u03c0": "\\pi ", "\u221e": "\\infty ", "\u2264": "\\le ", "\u2265": "\\ge ", "\u00b1": "\\pm ",
        "\u00b0": "^\\circ ", "\u221a": "\\sqrt", "\u00a0": " ", "\u202f": " ", "\u2009": " ", "~": " ",
    }
)  # fmt: skip
_WRAPPERS = (
    r"text|textbf|textrm|textit|textnormal|textsf|texttt|emph|mathrm|mathbf|mathit|mathsf|mathtt|mathnormal|mbox|hbox"
    r"|boldsymbol|bm|pmb|boxed|fbox|underline|uline|ensuremath|bold|bf|rm|color\s*\{\w+\}|textcolor\s*\{\w+\}"
)
_WRAPPER = re.compile(rf"\\(?:{_WRAPPERS})\s*(?=\{{)")
_SWITCH = re.compile(r"^\{?\s*\\(?:bf|rm|it|bfseries|large|Large|huge|Huge)(?![A-Za-z])(?!\s*\{)\s*(.*?)\}?$")
_DELIMITERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("*", "*"), ("`", "`"))
_ABOUT = re.compile(
    r"^(?:(?:\\(?:approx|simeq|sim|doteq)(?![A-Za-z])|\u2248|~)|(?:\\text\s*\{\s*)?(?:about|approximately|approx\.?|roughly)"
    r"(?![A-Za-z])\s*\}?)\s*",
    re.IGNORECASE,
)
_FUNCTIONS = re.compile(r"(?<![\\A-Za-z])(arcsin|arccos|arctan|sin|cos|tan|log|ln|pi|sqrt)(?![A-Za-z])")
_BASE = re.compile(r"(?<![A-Za-z\\\d])\(?([0-9A-F]+)\)?\s*_\s*(?:\\text|\\mathrm)?\s*(?:\{\s*(\w+)\s*\}|(\d+|[a-z]+))$")
_THOUSANDS = re.compile(r"(?<![\d,.])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")
_SPACED_THOUSANDS = re.compile(r"^([-+]?[1-9]\d{0,2})((?: \d{3})+)((?:\.\d+)?)(?![\d ])")
_BRACKET = re.compile(r"[(\[]|\\\{|\\left|^\s*\{")
_COMMANDS = re.compile(r"\\(?:begin|end|operatorname|mathbb|mathcal)\s*\{[^{}]*\}|\\[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z]{3,}")
_MATH_WORDS = {"and", "sqrt", "infinity", "sin", "cos", "tan", "log", "arcsin", "arccos", "arctan"}

_DECIMAL = re.compile(r"([-+]?)(?=\.?\d)(\d*)(?:\.(\d*))?(?:[eE]([-+]?\d{1,3}))?", re.ASCII)
_RATIO = re.compile(
    r"([-+]?)\s*(?:(\d+)\s*)?\\frac\s*\{\s*([-+]?\d+)\s*\}\s*\{\s*([-+]?\d+)\s*\}|([-+]?)(?:(\d+)\s+)?(\d+)\s*/\s*(\d+)",
    re.ASCII,
)


@dataclass(frozen=True)
class Plain:
    """An answer without what surrounds its value."""

    text: str
    units: frozenset[str]
    """The measures that stood around it, as math_units names them."""


def normalise(text: str) -> Plain:
    """The answer without delimiters, bold, currency, units, spacing commands and thousands separators."""
    text = text.translate(_SYMBOLS)
    text = re.sub(r"\\(?:displaystyle|limits|!|left(?![A-Za-z])|right(?![A-Za-z]))\s?", "", text)
    text = re.sub(r"\\[dtc]frac(?![A-Za-z])", r"\\frac", text)
    text = re.sub(r"(?<=\d)\s*\{,\}\s*(?=\d)", ",", text)
    text = re.sub(r"(?<!\\)\\(?:[,;: ]|q?quad(?![A-Za-z]))", " ", text)
    text = re.sub(r"\\?sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    previous, units = None, frozenset[str]()
    while previous != text:  # each pass removes something or ends
        previous = text
        text, found = drop_units(_unwrapped(re.sub(r"\s+", " ", text).strip()))
        units |= found
    text = brace_arguments(_without_thousands(text))
    if scaled := scale_word(text):
        text = _scaled_text(*scaled) or text
    return Plain(clock_time(text) or text, units)


def _unwrapped(text: str) -> str:
    """One layer less of what surrounds an answer without being part of it."""
    text = _ABOUT.sub("", text.rstrip(",;: ") if clock_time(text) else text.rstrip(".,;: "))
    for opening, closing in _DELIMITERS:
        if text.startswith(opening) and text.endswith(closing) and len(text) >= len(opening + closing):
            inner = text[len(opening) : -len(closing)]
            if opening not in inner:
                return inner
    wrapper = _WRAPPER.match(text)
    if wrapper and _closing_brace(text, wrapper.end()) == len(text) - 1:
        return text[wrapper.end() + 1 : -1]
    if switch := _SWITCH.match(text):
        return switch[1]
    if re.fullmatch(r"\([A-Za-z]\)", text):  # a choice: (B)
        return text[1]
    return text


def _scaled_text(number: str, scale: Fraction) -> str | None:
    value = plain_number(number)
    if value is None:
        return None
    value *= scale
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


def brace_arguments(text: str) -> str:
    """Arguments of one token in braces, as LaTeX reads them: `\\frac 1 2`, `\\sqrt2`, `\\log_2 8`, `2516_8`."""
    text = _FUNCTIONS.sub(r"\\\1 ", text) if not _has_prose(text) else text
    text = _BASE.sub(lambda match: f"{match[1]}_{{{match[2] or match[3]}}}", text)
    text = re.sub(r"(\\log\s*_)\s*(\w)\s*(?=\w)", r"\1{\2} ", text)
    for start in reversed([match.end() for match in re.finditer(r"\\(?:frac|binom)(?![A-Za-z])", text)]):
        first, rest = _argument(text[start:])
        second, rest = _argument(rest)
        if first and second:
            text = f"{text[:start]}{first}{second}{rest}"
    return re.sub(r"\\sqrt\s*(\w)", r"\\sqrt{\1}", text)


def _argument(text: str) -> tuple[str, str]:
    """The first argument of a command in braces, and what follows it."""
    text = text.lstrip()
    if text.startswith("{"):
        end = _closing_brace(text, 0) + 1
        return text[:end], text[end:]
    token = re.match(r"\\[A-Za-z]+|[^\\{}]", text)
    return (f"{{{token[0]}}}", text[token.end() :]) if token else ("", text)


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
    if _has_prose(text):
        return True
    return re.search(r"\d\s*_|\d\s*:\s*\d|\d\s+\d", text) is not None


def _has_prose(text: str) -> bool:
    bare = _COMMANDS.sub(" ", text)
    return any(word.lower() not in _MATH_WORDS for word in _WORD.findall(bare))


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
