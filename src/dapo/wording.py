"""Words that error messages of every room need."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[object]) -> str | None:
    """The known name closest to `name`, or None when none is close. Letter case does not count."""
    by_lower = {str(each).lower(): str(each) for each in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def first_line(error: BaseException) -> str:
    """What an error of another library says, in one line; its name when it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
