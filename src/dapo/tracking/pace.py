"""How long the rest of a run will take, from how long its updates took."""

from __future__ import annotations

_WINDOW = 32
"""Updates that count. Resampling and answer lengths drift over a run, so the far past says little."""


class Pace:
    """Wall time of the latest updates: generation, resampling, training, evaluation and saving all count."""

    def __init__(self) -> None:
        self._seconds: tuple[float, ...] = ()
        self._since = 0.0

    def begin(self, now: float) -> None:
        """The next update starts now (seconds of any steady clock)."""
        self._since = now

    def update_done(self, now: float) -> None:
        """The update is finished and the next one starts."""
        self._seconds = (*self._seconds[1 - _WINDOW :], now - self._since)
        self._since = now

    def remaining(self, now: float, updates_left: int) -> float | None:
        """Seconds until `updates_left` more updates are done, the current one included; None before the first.

        The current update counts as an average one until it has taken longer; from then on it raises the average,
        so that a long search for groups is seen while it lasts.
        """
        if not self._seconds:
            return None
        if updates_left <= 0:
            return 0.0
        current = now - self._since
        finished = sum(self._seconds)
        average = finished / len(self._seconds)
        average = (finished + max(average, current)) / (len(self._seconds) + 1)
        return max(average - current, 0.0) + (updates_left - 1) * average
