"""Words that error messages of every room need."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[object], *, cutoff: float = 0.6) -> str | None:
    """The known name closest to `name`, or None when none is close. Letter case does not count.

    cutoff: how alike they must be, from 0 to 1 (the same).
    """
    by_lower = {str(each).lower(): str(each) for each in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def nearest_setting(name: str, known: Iterable[str]) -> str | None:
    """As `nearest`, for settings and flags: among hundreds of them something is always a bit alike, so only a slip of
    the keyboard counts, a beginning of three letters or more that one of them alone has, and a whole first word."""
    bare = {each.lstrip("-").replace("-", "_"): each for each in known}
    wanted = name.lstrip("-").replace("-", "_")
    begun = [each for each in bare if each.startswith(wanted)]
    if len(begun) == 1 and len(wanted) >= 3:
        return bare[begun[0]]
    words = [each for each in begun if each.startswith(wanted + "_")]
    guess = nearest(wanted, bare, cutoff=0.75) or (words[0] if words else None)
    return bare[guess] if guess else None


def first_line(error: BaseException) -> str:
    """What an error of another library says, in one line; its name when it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
