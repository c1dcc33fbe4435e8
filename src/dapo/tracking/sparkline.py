"""A curve of one text line."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

_LEVELS = "▁▂▃▄▅▆▇█"


def sparkline(values: Mapping[int, float], *, total: int, width: int) -> str:
    """The values of updates 1 to `total` over `width` cells; a cell shows the mean of the updates it covers.

    values: by number of update; 0 is the start. A cell without a value repeats the one before; the curve ends
    with the last update that has one. The scale runs from the least to the greatest value and always includes 0
    and 1, so that an accuracy is shown as it is and noise does not look like progress.
    """
    if not values:
        return ""
    low, high = min(0.0, *values.values()), max(1.0, *values.values())
    last = max(values)
    cells: list[str] = []
    shown = values.get(0)
    for cell in range(width):
        first, end = cell * total // width + 1, ceil((cell + 1) * total / width)
        if first > max(last, 1):
            break
        inside = [values[step] for step in range(first, end + 1) if step in values]
        shown = sum(inside) / len(inside) if inside else shown
        cells.append(" " if shown is None else _level(shown, low, high))
    return "".join(cells)


def _level(value: float, low: float, high: float) -> str:
    return _LEVELS[min(int((value - low) / (high - low) * len(_LEVELS)), len(_LEVELS) - 1)]
