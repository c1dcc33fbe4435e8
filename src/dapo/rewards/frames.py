"""Messages over a pipe: eight bytes of length, then the bytes. Both ends use these two functions."""

from __future__ import annotations

import os
import select
import struct
import time

_LENGTH = struct.Struct(">Q")
_CHUNK = 1 << 16
_LONGEST_WAIT_MS = 2**31 - 1
"""poll() counts milliseconds in 32 bits: 24 days."""


class FrameTimeout(Exception):
    """The other end did not read or write in time."""


def write_frame(fd: int, payload: bytes, deadline: float | None = None) -> None:
    """Send one message before `deadline` (time.monotonic). Raises FrameTimeout, or OSError on a broken pipe."""
    rest = memoryview(_LENGTH.pack(len(payload)) + payload)
    while rest:
        _wait(fd, select.POLLOUT, deadline)
        rest = rest[os.write(fd, rest[:_CHUNK]) :]


def read_frame(fd: int, deadline: float | None = None) -> bytes:
    """The next message. Raises FrameTimeout after `deadline`, EOFError when the other end is gone."""
    (length,) = _LENGTH.unpack(_read_exactly(fd, _LENGTH.size, deadline))
    return _read_exactly(fd, length, deadline)


def _read_exactly(fd: int, length: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < length:
        _wait(fd, select.POLLIN, deadline)
        part = os.read(fd, min(_CHUNK, length - len(data)))
        if not part:
            raise EOFError("the other end of the pipe is closed")
        data += part
    return bytes(data)


def _wait(fd: int, event: int, deadline: float | None) -> None:
    poll = select.poll()
    poll.register(fd, event)
    rest_ms = None if deadline is None else min(max(0.0, (deadline - time.monotonic()) * 1000), _LONGEST_WAIT_MS)
    if not poll.poll(rest_ms):
        raise FrameTimeout
