"""The run's side of one reward worker: start it, give it work, wait no longer than allowed, kill it for certain."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from dapo.errors import RewardError
from dapo.rewards.frames import FrameTimeout, read_frame, write_frame
from dapo.rewards.row_columns import RewardNeeds
from dapo.rewards.worker import Setup

START_LIMIT_S = 120.0
"""How long a worker may take to import the reward."""
_COMMAND = [sys.executable, "-P", "-c", "from dapo.rewards.worker import main; main()"]


class WorkerFailed(Exception):
    """The worker gave no usable reply and has been killed. `reason` is `timeout` or `crash`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class WorkerProcess:
    """One worker process. The thread that starts it must outlive it: Linux kills it when that thread ends."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def alive(self) -> bool:
        """Whether the process runs, as far as can be known now."""
        with self._lock:
            return self._process is not None and self._process.poll() is None

    def start(self) -> RewardNeeds:
        """Start the process and load the reward; returns what this needs.

        Raises RewardError when the reward cannot be loaded.
        """
        with self._lock:
            if self._closed:
                raise RewardError("the reward pool is closed")
            # A session of its own: Ctrl-C does not reach it, and its own children are killed with it.
            self._process = subprocess.Popen(
                _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            os.set_blocking(self._stdin(), False)
        try:
            self.send(self._setup, START_LIMIT_S)
            reply = self.receive(START_LIMIT_S)
        except WorkerFailed as failure:
            raise RewardError(
                f"a reward worker did not start: {failure.detail}",
                fix="run `python` on the reward file by itself; reward code must import within "
                f"{START_LIMIT_S:.0f} seconds",
            ) from failure
        if "error" in reply:
            self.kill()
            raise RewardError(reply["error"], fix=reply["fix"])
        ready = reply["ready"]
        return RewardNeeds(ready["name"], ready["whole_group"], tuple(ready["columns"]))

    def send(self, job: Any, limit_s: float) -> None:
        """Hand the worker a job. Raises WorkerFailed."""
        payload = pickle.dumps(job, protocol=pickle.HIGHEST_PROTOCOL)
        try:
            write_frame(self._stdin(), payload, time.monotonic() + limit_s)
        except (FrameTimeout, OSError) as error:
            raise self._failure(error, limit_s) from error

    def receive(self, limit_s: float) -> dict[str, Any]:
        """The worker's next reply. Raises WorkerFailed."""
        try:
            return json.loads(read_frame(self._stdout(), time.monotonic() + limit_s))
        except (FrameTimeout, EOFError, OSError, ValueError) as error:
            raise self._failure(error, limit_s) from error

    def kill(self) -> None:
        """End the process and everything it started, whatever it is doing. Harmless when repeated."""
        with self._lock:
            process = self._process
            if process is None or process.returncode is not None:
                return
            with contextlib.suppress(ProcessLookupError):  # not reaped yet, so the id is still its own
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        """Kill it for good: it is not started again. The pipes are closed by `release`, in its own thread."""
        with self._lock:
            self._closed = True
        self.kill()

    def release(self) -> None:
        """Kill it and close its pipes. Only for the thread that talks to it."""
        self.kill()
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):
                    pipe.close()
            self._process = None

    def _failure(self, error: Exception, limit_s: float) -> WorkerFailed:
        self.kill()
        if isinstance(error, FrameTimeout):
            return WorkerFailed("timeout", f"no reply within {limit_s:g} s")
        code = None if self._process is None else self._process.returncode
        return WorkerFailed("crash", f"its process ended with code {code}")

    def _stdin(self) -> int:
        assert self._process is not None
        assert self._process.stdin is not None
        return self._process.stdin.fileno()

    def _stdout(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()
