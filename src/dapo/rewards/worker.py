"""A reward worker: the process that reads hostile text so that the run does not have to.

It reads one Setup and then jobs (pickled, from the run that started it) on its standard input, and writes JSON
replies on what was its standard output: nothing that a worker says is ever unpickled. A job is (prompt, samples);
each sample is answered as soon as it is scored, so the run knows which one hangs.

    {"ready": {name, whole_group, columns}}     the reward is loaded; sent once
    {"scores": [[value, metrics], ...]}         one sample, or the whole group
    {"failed": reason, "detail": text}          scored 0 and counted: memory, checker_error
    {"error": problem, "fix": fix}              stops the run

Started by worker_process.py; ends when its input closes or its parent dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pickle
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from dapo.errors import RewardError
from dapo.records import Prompt, Score
from dapo.rewards.built_in import BUILT_IN
from dapo.rewards.frames import read_frame, write_frame
from dapo.rewards.row_columns import RewardNeeds
from dapo.rewards.user_function import Sample, load_user_function
from dapo.user_file import describe_exception

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Setup:
    """What a worker needs to know before its first job."""

    built_in: str | None
    """Name of a built-in reward, or None for a person's own."""
    path: str | None
    """File of a person's own reward."""
    function: str | None
    """Function in that file; None to look for it."""
    memory_mb: int
    """Growth in MiB that is allowed once the reward is loaded."""


class Reward(Protocol):
    """What a worker calls."""

    @property
    def needs(self) -> RewardNeeds: ...

    def score(self, prompt: Prompt, samples: Sequence[Sample]) -> list[Score]: ...


class CheckerError(Exception):
    """A built-in checker broke on an answer: counted and logged, not taken for a wrong answer."""


@dataclass(frozen=True)
class BuiltIn:
    """A built-in reward as a worker calls it."""

    name: str

    @property
    def needs(self) -> RewardNeeds:
        return RewardNeeds(self.name, whole_group=False, columns=())

    def score(self, prompt: Prompt, samples: Sequence[Sample]) -> list[Score]:
        """Raises RewardError for a bad reference answer and CheckerError for a fault of our own."""
        check = BUILT_IN[self.name]
        try:
            return [check(completion.text, prompt.answer) for _, completion in samples]
        except RewardError as error:
            raise RewardError(f"row {prompt.index}: {error.problem}", fix=error.fix) from error
        except MemoryError:
            raise
        except Exception as error:
            raise CheckerError(describe_exception(error)) from error


def main() -> None:
    """Serve one run until its end of the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the run's to handle
    _die_with_parent()
    requests, replies = _take_over_pipes()
    with contextlib.suppress(EOFError, BrokenPipeError):  # the run is over
        _serve(requests, replies)


def _serve(requests: int, replies: int) -> None:
    setup: Setup = pickle.loads(read_frame(requests))
    try:
        reward = _load(setup)
    except RewardError as error:
        return _reply(replies, {"error": error.problem, "fix": error.fix})
    _limit_memory(setup.memory_mb)
    needs = reward.needs
    _reply(replies, {"ready": asdict(needs)})
    while True:
        prompt, samples = pickle.loads(read_frame(requests))
        portions = [samples] if needs.whole_group else [[sample] for sample in samples]
        for portion in portions:
            reply = _score(reward, prompt, portion)
            _reply(replies, reply)
            if reply.get("failed") == "memory":
                return None  # what is left of this process is not to be trusted


def _load(setup: Setup) -> Reward:
    if setup.built_in is None:
        assert setup.path is not None
        return load_user_function(setup.path, setup.function)
    if setup.built_in == "math":
        from dapo.rewards.math_expressions import warm_up

        warm_up()
    return BuiltIn(setup.built_in)


def _score(reward: Reward, prompt: Prompt, samples: Sequence[Sample]) -> dict[str, Any]:
    try:
        scores = reward.score(prompt, samples)
        return {"scores": [[score.value, dict(score.metrics)] for score in scores]}
    except RewardError as error:
        return {"error": error.problem, "fix": error.fix}
    except CheckerError as error:
        return {"failed": "checker_error", "detail": str(error)}
    except MemoryError:
        return {"failed": "memory", "detail": "it needed more than reward_memory_mb"}


def _reply(fd: int, message: dict[str, Any]) -> None:
    write_frame(fd, json.dumps(message).encode())


def _take_over_pipes() -> tuple[int, int]:
    """Keep the two pipes for ourselves; reward code that prints reaches standard error instead."""
    requests, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return requests, replies


def _die_with_parent() -> None:
    """A worker that hangs never sees its input close, so on Linux the kernel kills it when its parent is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _limit_memory(megabytes: int) -> None:
    """Allow the address space to grow by so much from here on. Linux only: elsewhere there is no such limit."""
    if sys.platform != "linux":
        return
    import resource

    with open("/proc/self/statm") as statm:
        now = int(statm.read().split()[0]) * resource.getpagesize()
    limit = min(now + megabytes * 2**20, sys.maxsize)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
