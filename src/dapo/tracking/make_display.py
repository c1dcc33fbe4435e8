"""The display that a stream can show."""

from __future__ import annotations

import codecs
from typing import TextIO

from rich.console import Console

from dapo.tracking.display import Display
from dapo.tracking.live_display import LiveDisplay
from dapo.tracking.plain_display import PlainDisplay


def make_display(stream: TextIO) -> Display:
    """The live screen where `stream` is a terminal that can draw it, otherwise plain lines."""
    if stream.isatty() and _is_utf8(stream):
        console = Console(file=stream, highlight=False)
        if not console.is_dumb_terminal:
            return LiveDisplay(console)
    return PlainDisplay(stream)


def _is_utf8(stream: TextIO) -> bool:
    try:
        return codecs.lookup(stream.encoding or "ascii").name == "utf-8"
    except LookupError:
        return False
