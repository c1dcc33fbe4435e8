"""Ctrl-C and SIGTERM: the update in flight is finished and saved; asked again, the run ends at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ANSWER = b"\nfinishing this update and saving; once more ends the run at once\n"


class StopRequest:
    """Whether a run was asked to stop, and by what."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def exit_code(self) -> int:
        """What a shell expects: 0, or 128 and the signal (130 for Ctrl-C, 143 for SIGTERM)."""
        return 0 if self.signal is None else 128 + self.signal

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals while the run loop goes. Only a main thread can, elsewhere nothing is changed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._asked) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise SystemExit(128 + number)
        self.signal = number
        with suppress(OSError):  # past every buffer, which this very signal may have caught half way
            os.write(2, _ANSWER)
