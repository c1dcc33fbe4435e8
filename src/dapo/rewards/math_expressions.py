"""Answers as mathematics: read by latex2sympy, compared by math-verify, with guards where it says yes too easily.

Guards, all on the side of "not equal":
    numbers      compared exactly, or to 6 digits where a decimal stands for what has no end
    equations    equal only when one is a constant multiple of the other
    the rest     math-verify's yes must also hold, number by number, in the parts and at two points

An answer that cannot be read to its last character equals nothing. Nothing here limits time or memory: call it
in a process that can be killed.
"""

from __future__ import annotations

import logging
import re
from typing import Any

_MAX_LENGTH = 1000
"""Characters beyond which an answer is compared as text only."""
_DIGITS = 2000
"""To so many digits two numbers must agree that are not fractions."""
_IMAGINARY = re.compile(r"(?<![A-Za-z\\])i(?![A-Za-z])")
_LEFT_OUT = re.compile(r"['\"]|\\[lcv]?dots|\.\.\.")
_POINTS = ("137/100", "269/100")
"""Where expressions with variables are also compared; the k-th variable sits k further along."""


def same_expression(gold: str, answer: str) -> bool:
    """Whether two normalised LaTeX answers are the same mathematical object."""
    if max(len(gold), len(answer)) > _MAX_LENGTH:
        return False
    if _LEFT_OUT.findall(gold) != _LEFT_OUT.findall(answer):  # the reader passes over these: 5' and \\ldots 5
        return False
    complex_numbers = any(map(_is_complex, (gold, answer)))  # the same reading of i on both sides: 3i and 3 i
    gold_read, answer_read = (_read(text, complex_numbers=complex_numbers) for text in (gold, answer))
    if gold_read is None or answer_read is None:
        return False
    return _same(gold_read, answer_read)


def warm_up() -> None:
    """Import and build what the first comparison needs, so that no answer's time limit pays for it."""
    same_expression("\\frac{x}{2}", "\\frac{1}{2}x")


def _is_complex(latex: str) -> bool:
    from math_verify.grader import should_treat_as_complex

    return should_treat_as_complex(latex) or ("\\sum" not in latex and _IMAGINARY.search(latex) is not None)


def _read(latex: str, *, complex_numbers: bool) -> Any:
    """The sympy object for `latex`, or None when it is not mathematics from beginning to end."""
    import sympy
    from latex2sympy2_extended import NormalizationConfig, latex2sympy

    rules = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none")
    # The reader takes \mathrm{e} for a variable called e.
    latex = re.sub(r"\\(?:mathrm|text)\s*\{\s*([eid])\s*\}", r"\1", latex)
    try:
        value = latex2sympy(latex, is_real=not complex_numbers, normalization_config=rules)
    except Exception as error:
        if type(error) is Exception:  # how the reader reports text that it cannot read
            return None
        raise
    if complex_numbers:  # the reader leaves i a variable
        value = value.xreplace({symbol: sympy.I for symbol in value.free_symbols if symbol.name == "i"})
    return value


def _same(gold: Any, answer: Any) -> bool:
    import sympy

    if _is_number(gold) and _is_number(answer):
        return _same_number(gold, answer)
    if isinstance(gold, sympy.Eq) and isinstance(answer, sympy.Eq):
        return _same_equation(gold, answer)
    if isinstance(gold, sympy.Eq) or isinstance(answer, sympy.Eq):
        return False  # math-verify would take the right side for the value
    return _library_says_same(gold, answer) and _same_parts(gold, answer) and _same_at_points(gold, answer)


def _library_says_same(gold: Any, answer: Any) -> bool:
    from math_verify import verify

    logging.getLogger("math_verify.grader").setLevel(logging.ERROR)  # it warns that its time limit is off
    return bool(verify(gold, answer, timeout_seconds=None, raise_on_error=True))


def _is_number(value: Any) -> bool:
    import sympy

    return isinstance(value, sympy.Expr) and bool(value.is_number)


def _same_number(gold: Any, answer: Any) -> bool:
    """Exactly equal, or to 6 digits where one is a decimal that stands for what has no end."""
    import sympy

    if gold == answer:
        return True
    one, other = _exact(gold), _exact(answer)
    sizes = [abs(sympy.N(value, 30)) for value in (one, other)]
    distance = abs(sympy.N(one - other, 30))
    if not all(value.is_finite for value in (*sizes, distance)):
        return False
    if distance > max(sizes) * sympy.Rational(1, 10**6):
        return False  # and nothing large was worked out to see it
    rounded = _stands_for(gold, answer, other) or _stands_for(answer, gold, one)
    return rounded or _is_zero(one - other)


def _exact(value: Any) -> Any:
    """The same with every decimal as a fraction."""
    import sympy

    return value.xreplace({decimal: sympy.Rational(str(decimal)) for decimal in value.atoms(sympy.Float)})


def _stands_for(decimal: Any, endless: Any, exact: Any) -> bool:
    """Whether one was written as a decimal and the other, worth `exact`, has no end as one."""
    import sympy

    if not decimal.has(sympy.Float) or _has_end(exact):
        return False
    return not endless.has(sympy.Float) or _has_end(_exact(decimal))


def _has_end(value: Any) -> bool:
    value = value.doit()
    # A denominator of twos and fives divides a power of ten; its primes are not looked for, which could take for ever.
    return bool(value.is_Rational) and pow(10, int(value.q).bit_length(), int(value.q)) == 0


def _is_zero(difference: Any) -> bool:
    """Zero as a fraction; else no digit of it shows among as many as could, so that close numbers differ."""
    import sympy

    difference = difference.doit()
    if difference.is_Rational:
        return bool(difference == 0)
    if difference.has(sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit):
        return bool(abs(sympy.N(difference, 15)) < sympy.Rational(1, 10**12))  # no digits without end are known
    parts = sympy.N(difference, 15, maxn=_DIGITS).as_real_imag()
    return all(part == 0 or getattr(part, "_prec", 2) == 1 for part in parts)


def rounds_to(exact: str, decimal: str) -> bool:
    """Whether `decimal` is what the number `exact` comes to, rounded or cut to the places that are written."""
    import sympy

    places = re.fullmatch(r"-?\d+(?:\.(\d+))?", decimal.strip())
    value = _read(exact, complex_numbers=False)
    if places is None or value is None or not _is_number(value):
        return False
    if not sympy.N(value, 30).is_finite:
        return False
    return bool(abs(sympy.N(value, 30) - sympy.Rational(decimal)) < sympy.Rational(1, 10 ** len(places[1] or "")))


def _same_equation(gold: Any, answer: Any) -> bool:
    """x = 5 and 2x = 10: one is a constant multiple of the other. Solving both could compare two empty lists."""
    import sympy

    if gold.lhs == answer.lhs:
        return _same(gold.rhs, answer.rhs)
    sides = (gold.lhs, gold.rhs, answer.lhs, answer.rhs)
    if not all(isinstance(side, sympy.Expr) for side in sides):
        return False
    ratio = sympy.simplify((gold.lhs - gold.rhs) / (answer.lhs - answer.rhs))
    return bool(ratio.is_number and ratio.is_finite and not ratio.is_zero)


def _parts(value: Any) -> tuple[Any, ...]:
    import sympy

    if isinstance(value, sympy.Interval):
        return (value.start, value.end)
    return tuple(value.args) if isinstance(value, sympy.Tuple | sympy.FiniteSet) else ()


def _same_parts(gold: Any, answer: Any) -> bool:
    """Every member of a set, tuple or interval has its equal on the other side."""
    gold_parts, answer_parts = _parts(gold), _parts(answer)
    if not (gold_parts and answer_parts):
        return True
    return all(any(_same(part, other) for other in answer_parts) for part in gold_parts)


def _same_at_points(gold: Any, answer: Any) -> bool:
    """Expressions with variables also agree where the variables are given numbers."""
    import sympy

    if not (isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr)):
        return True
    names = sorted(gold.free_symbols | answer.free_symbols, key=str)
    for point in map(sympy.Rational, _POINTS):
        values = {name: point + index for index, name in enumerate(names)}
        one, other = gold.subs(values), answer.subs(values)
        if _is_number(one) and _is_number(other) and not _same_number(one, other):
            return False
    return True
