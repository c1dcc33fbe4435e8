"""What kind of value a setting takes, in a person's words."""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from dapo.wording import nearest

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_EXAMPLES: dict[Any, Any] = {int: 8, float: 1.0, bool: "true", str: "name"}


@dataclass(frozen=True)
class Kind:
    """What is wanted, and an example."""

    words: str
    example: str
    choices: tuple[str, ...] = ()
    """The legal values, where they can be listed."""


def kind_of(settings: type, name: str) -> Kind:
    """The kind of value of a field of a settings class; its default is the example, if it has one."""
    (default,) = [field.default for field in fields(settings) if field.name == name]
    expected = get_type_hints(settings)[name]
    (bare,) = [each for each in get_args(expected) or (expected,) if each is not NoneType][:1]
    if get_origin(expected) is Literal or get_origin(bare) is Literal:
        choices = tuple(str(each) for each in get_args(expected if get_origin(expected) is Literal else bare))
        return Kind(("one of " if len(choices) > 1 else "") + _listed(choices), choices[0], choices)
    if get_origin(expected) is tuple:
        return Kind("a list of texts", '["END"]')
    example = default if isinstance(default, bare) and not isinstance(default, bool) else _EXAMPLES[bare]
    return Kind(_WORDS[bare], str(example))


def wrong_kind(kind: Kind, shown: str) -> tuple[str, str]:
    """The end of a sentence that says what is wrong with a value, and the fix."""
    if not kind.choices:
        return (
            f"not {kind.words}",
            kind.words if kind.words == "true or false" else f"{kind.words}, such as {kind.example}",
        )
    guess = nearest(shown.strip("'"), kind.choices)
    return f"which is not {kind.words}", _listed(kind.choices) + (f"; did you mean {guess}?" if guess else "")


def _listed(choices: tuple[str, ...]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"
