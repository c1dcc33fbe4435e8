"""`metrics.jsonl`: one line per update, the truth about a run that every chart and tracker reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dapo.errors import DataError
from dapo.tracking.json_lines import JsonLines, read
from dapo.tracking.metrics import MetricValue, metric


class MetricsLog:
    """Writes the metrics of each update to `path`."""

    def __init__(self, path: Path) -> None:
        self._lines = JsonLines(path)

    def write(self, step: int, metrics: Mapping[str, MetricValue]) -> None:
        """Adds the line of update `step`: 1 for the first, 0 for what was measured before any.

        Ints stay ints, None and non-finite floats become null. Raises KeyError for a name that is not declared, and
        DapoError naming the file when it cannot be written.
        """
        for name in metrics:
            metric(name)
        self._lines.append(step, metrics)

    def truncate_after(self, step: int) -> None:
        """Forgets the updates after `step`: used when a run goes back to a checkpoint."""
        self._lines.truncate_after(step)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`, each with `step` and its metrics; also of a run that is still writing it.

    Raises DataError when the file is missing or damaged before its last line.
    """
    lines = list(read(path))
    for line in lines:
        for name, value in line.items():
            if not (value is None or isinstance(value, int | float)):
                raise DataError(
                    f"{path}: {name} of update {line['step']} is {value!r}, not a number", fix="remove that line"
                )
    return lines
