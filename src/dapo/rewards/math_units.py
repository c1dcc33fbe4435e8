"""Units around a number: which words are known, what they say, and the words that multiply it instead.

Only known words are dropped. Anything else behind a number (p.m., BC, north, half) may change what it means, so it
stays and is compared as text.
"""

from __future__ import annotations

import re
from fractions import Fraction

_MEASURES = """
mm millimeter millimetre | cm centimeter centimetre | dm decimeter decimetre | m meter metre
km kilometer kilometre | in inch inches | ft foot feet | yd yard | mi mile | nm nanometer | micrometer micron
mg milligram | g gm gram gramme | kg kilogram kilo | t ton tonne | lb pound gbp £ | oz ounce
ml milliliter millilitre cc | cl centiliter | l liter litre | gal gallon | qt quart | pt pint | cup
tbsp tablespoon | tsp teaspoon | acre | ha hectare
ms millisecond | s sec second | min minute | h hr hour | day | wk week | month | yr year | decade
century centuries | deg degree | rad radian | c celsius | f fahrenheit | k kelvin
dollar usd $ | cent penny pennies pence ¢ | euro eur € | rupee rs inr ₹ | yuan rmb | yen ¥ | peso | ruble
mph | kmph kph kmh | knot | rpm | revolution | n newton | j joule | kj kilojoule | w watt | kw kilowatt | kwh
v volt | a amp ampere | ohm | hz hertz | pa pascal | kpa | atm | mol mole | cal calorie | kcal
bit | byte | kb kilobyte | mb megabyte | gb gigabyte | db decibel | ev
"""
_THINGS = """
people person persons man men woman women child children kid boy girl student pupil teacher friend player team member
family families adult worker employee guest customer passenger soldier sailor candidate voter vote

apple orange banana pear peach grape lemon mango egg cookie cake cupcake pie pizza slice piece candy candies chocolate
sandwich sandwiches muffin donut meal serving bean seed nut potato potatoes tomato tomatoes carrot flower rose plant
tree leaf leaves animal dog puppy puppies cat kitten fish bird cow pig goat horse sheep chicken duck rabbit monkey bee
ant frog

book page pencil pen crayon marker sheet card ticket coin bill stamp marble ball toy doll sticker bead button balloon
letter word bottle box boxes bag basket carton can jar pack packet package bucket crate glass glasses plate car bus
buses truck bike bicycle train boat seat room house chair table shirt shoe sock dress dresses hat dime nickel

unit way solution root number digit integer term pair triple triplet tuple subset set element member permutation
combination arrangement function polynomial factor divisor multiple prime triangle square rectangle circle polygon
quadrilateral side edge vertex vertices face corner diagonal line point segment region path step time trip lap turn
move round game goal match matches race question problem test item object thing group row column tile block brick
cube chip token dot symmetry symmetries th st nd rd
"""
_MODIFIERS = {"square", "sq", "cubic", "cu", "squared", "cubed", "per", "us", "of", "integer", "distinct", "different"}
_SCALES = {
    "hundred": 10**2, "thousand": 10**3, "lakh": 10**5, "million": 10**6, "crore": 10**7, "billion": 10**9,
    "trillion": 10**12, "dozen": 12,
}  # fmt: skip


def _table() -> dict[str, str | None]:
    """Word -> the measure it names, or None for a thing that is only counted."""
    table: dict[str, str | None] = dict.fromkeys(_MODIFIERS)
    for word in _THINGS.split():
        table[word] = table[word + "s"] = None
    for line in re.split(r"[|\n]", _MEASURES):
        for word in line.split():
            table[word] = table[word + "s"] = line.split()[0]
    return table


_KNOWN = _table()
_POWER = r"(?:\s*\^\s*\{?\s*-?\d\s*\}?)?"
_WRAPPED = re.compile(
    rf"(?:\^\s*\{{?)?\\(?:text|textrm|mathrm|mbox|textnormal|rm|operatorname)\s*\{{([^{{}}]*)\}}\}}?{_POWER}$"
)
_BARE_RATIO = re.compile(rf"(?<![A-Za-z\\])([A-Za-z]{{1,10}})\s*/\s*([A-Za-z]{{1,10}}){_POWER}$")
_BARE = re.compile(rf"(?<![A-Za-z\\])([A-Za-z]{{2,14}})\.?{_POWER}$")
_ATTACHED = re.compile(r"(?:[cmk]m|[mk]g|ml|ft|mph|lbs?|oz|min|st|nd|rd|th)$", re.IGNORECASE)
_DEGREES = re.compile(
    r"\s*(?:\^\s*\{?\s*\\circ\s*\}?|\\degree|\\textdegree)\s*(?:\\(?:text|mathrm)\s*\{\s*)?([CF]?)\s*\}?$"
)
_SIGNS = r"\\?\$|[\u20ac\u00a3\u00a5\u20b9]|(?:Rs\.?|USD|EUR|INR)(?![A-Za-z])|\\text\{\s*(?:Rs\.?|USD|US\\?\$)\s*\}"
_CURRENCY = re.compile(rf"^([-+]?)\s*(?:US)?({_SIGNS})\s*(?=[-+]?[\d.\\])|({_SIGNS}|\\?\u00a2)$")
_GAP = re.compile(r"(?:\\[,;:! ]|~|\s|\\$)+$")
_JOINT = re.compile(r"(?:/|\\cdot|\\times|-)\s*$")
_VALUE = re.compile(r"[\d})\]!.]$|\\[A-Za-z]+$|(?<![A-Za-z])[A-Za-z]$")
_LONGEST = 80
"""Characters at the end of an answer in which units are looked for."""


def drop_units(text: str) -> tuple[str, frozenset[str]]:
    """The text without known units before and behind its value, and the measures that they name."""
    text, currency = _drop_currency(text)
    rest, words = text, list[str]()
    while (step := _last_unit(rest, bool(words))) is not None:
        rest, found = step
        words += found
    if set(words) <= _MODIFIERS:  # 5 squared
        return text, currency
    rest = _JOINT.sub("", rest).rstrip()
    if not (_VALUE.search(rest) or scale_word(rest)):
        return text, currency  # language: old men, 3 red apples
    return rest, currency | {measure for word in words if (measure := _KNOWN[word])}


def _drop_currency(text: str) -> tuple[str, frozenset[str]]:
    match = _CURRENCY.search(text)
    if match is None:
        return text, frozenset()
    sign = re.sub(r"\\text|[\\{}.\s]|US(?=\\?\$)", "", match[2] or match[3]).lower()
    return _CURRENCY.sub(lambda found: found[1] or "", text), frozenset({_KNOWN[sign] or sign})


def _last_unit(text: str, joined: bool) -> tuple[str, list[str]] | None:
    """The text without its last unit, and the unit's words; None when no known unit stands there."""
    end = text[-_LONGEST:]
    start = text[:-_LONGEST] if len(text) > _LONGEST else ""
    end = _GAP.sub("", end)
    if joined and _JOINT.search(end):
        end = _GAP.sub("", _JOINT.sub("", end))
    if match := _DEGREES.search(end):
        return start + end[: match.start()], ["degree", match[1].lower()] if match[1] else ["degree"]
    if match := _WRAPPED.search(end):
        words = re.findall(r"[A-Za-z]+", match[1])
        scale = f" {words.pop(0)}" if len(words) > 1 and words[0].lower() in _SCALES else ""  # \text{ million dollars}
        known = words and all(word.lower() in _KNOWN for word in words)
        before = end[: match.start()]
        if words in (["N"], ["W"]) and _DEGREES.search(_GAP.sub("", before)):
            return None  # north and west rather than newton and watt
        if known and not re.search(r"[^A-Za-z\s./^\d{}\u00b7*-]", match[1]) and not re.match(r"\s*\d", match[1]):
            return start + before + scale, [word.lower() for word in words]
        return None
    if match := _BARE_RATIO.search(end):
        words = [match[1].lower(), match[2].lower()]
        if all(word in _KNOWN for word in words) and re.search(r"[\d})]\s*$", end[: match.start()]):
            return start + end[: match.start()], words
    if match := _BARE.search(end):
        before, word = end[: match.start()], match[1].lower()
        apart = before.endswith((" ", "~", "/", "-")) or (_ATTACHED.match(word) and before[-1:].isdigit())
        if word in _KNOWN and apart and re.search(r"[\d})A-Za-z/-]$", _GAP.sub("", before)):
            return start + before, [word]
    return None


_SCALED = re.compile(
    rf"^(.*[\d}}])(?:\\[,; ]|~|\s)*(?:\\(?:text|mathrm)\s*\{{)?\s*({'|'.join(_SCALES)})s?\s*\}}?$", re.IGNORECASE
)


def scale_word(text: str) -> tuple[str, Fraction] | None:
    """`3 million` as the text `3` and what it is multiplied by; None without such a word at the end."""
    match = _SCALED.match(text)
    return (match[1], Fraction(_SCALES[match[2].lower()])) if match else None


_CLOCK = re.compile(
    r"(\d{1,2})(?:\s*:\s*(\d\d))?(?:\\[,; ]|~|\s)*(?:\\(?:text|mathrm)\s*\{)?\s*([ap])\.?\s*m\.?\s*\}?", re.IGNORECASE
)


def clock_time(text: str) -> str | None:
    """`3 p.m.`, `3:00 PM` and `3:00\\text{ pm}` in one spelling; None for what is no time of a twelve-hour clock."""
    match = _CLOCK.fullmatch(text.strip())
    return f"{int(match[1])}:{match[2] or '00'} {match[3].lower()}m" if match else None
