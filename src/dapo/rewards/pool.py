"""Scoring in worker processes that can be killed.

    submit(prompt, completions) -> one _PendingGroup -> portions in a queue
    one thread per worker: take a portion, send it, wait for each reply at most reward_timeout_s

A worker that hangs, dies or takes too much memory is killed and replaced; the answer it was reading scores 0.0 and
is counted, and the answers behind it go back into the queue. Every answer gets exactly one score, in order.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any

from dapo.errors import RewardError
from dapo.records import Completion, Prompt, Score
from dapo.rewards.row_columns import RewardNeeds
from dapo.rewards.settings import RewardSettings
from dapo.rewards.user_function import Sample, shortened
from dapo.rewards.worker import Setup
from dapo.rewards.worker_process import WorkerFailed, WorkerProcess
from dapo.user_file import split_path

FAILURES = ("timeout", "memory", "crash", "checker_error")
"""Why an answer can score 0.0 without having been judged."""
_PORTIONS_PER_WORKER = 2
"""Portions into which a group is cut per worker: enough to even out slow answers, few enough to be quick."""
_log = logging.getLogger(__name__)


class _PendingGroup:
    """The scores of one group as they come in. Completes its future when the last is there."""

    def __init__(self, prompt: Prompt, n: int, future: Future[list[Score]]) -> None:
        self.prompt = prompt
        self.future = future
        self._scores: list[Score | None] = [None] * n
        self._killed: list[int] = []

    def settle(self, index: int, score: Score | None) -> None:
        """Score of answer `index`; None when it was killed. Callers hold the pool's lock."""
        if score is None:
            self._killed.append(index)
            score = Score(0.0)
        self._scores[index] = score

    def finish(self, known_metrics: set[str]) -> bool:
        """Fill the killed answers' metrics with 0.0, so that a filter on any metric works. False while some miss."""
        if any(score is None for score in self._scores):
            return False
        scores = [score for score in self._scores if score is not None]
        judged = [score for index, score in enumerate(scores) if index not in self._killed]
        names = {name for score in judged for name in score.metrics} or known_metrics
        known_metrics |= names
        for index in self._killed:
            scores[index] = Score(0.0, dict.fromkeys(sorted(names), 0.0))
        _resolve(self.future, scores)
        return True


@dataclass(frozen=True)
class _Portion:
    """Some answers of one group, for one worker."""

    group: _PendingGroup
    samples: tuple[Sample, ...]


class RewardPool:
    """Worker processes that score groups. Use it as a context manager, or call `close`.

    Starting it loads the reward in a worker, so a reward that cannot be used is an error before any model is
    loaded. It can be used from any thread.
    """

    def __init__(self, settings: RewardSettings) -> None:
        self._settings = settings
        self._setup = _setup(settings)
        self._portions: queue.SimpleQueue[_Portion | None] = queue.SimpleQueue()
        self._workers = [WorkerProcess(self._setup) for _ in range(settings.workers)]
        self._threads: list[threading.Thread] = []
        self._needs: Future[RewardNeeds] = Future()
        self._lock = threading.Lock()
        self._pending: set[_PendingGroup] = set()
        self._failures = dict.fromkeys(FAILURES, 0)
        self._metrics = {"acc"} if settings.reward is not None else set()
        self._closed = False

    def __enter__(self) -> RewardPool:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def failures(self) -> Mapping[str, int]:
        """Answers that scored 0.0 since the start because of a `timeout`, `memory`, a `crash` or a `checker_error`."""
        with self._lock:
            return MappingProxyType(dict(self._failures))

    def start(self) -> None:
        """Start the workers and wait until one has loaded the reward. Done by the first use if not before.

        Raises RewardError when the reward cannot be loaded.
        """
        with self._lock:
            if self._closed:
                raise RewardError("the reward pool is closed", fix="make a new RewardPool")
            if not self._threads:
                self._threads = [
                    threading.Thread(target=self._serve, args=(worker,), name=f"reward-{i}", daemon=True)
                    for i, worker in enumerate(self._workers)
                ]
                for thread in self._threads:
                    thread.start()
        try:
            self._needs.result()
        except BaseException:
            self.close()
            raise

    def check(self, prompts: Iterable[Prompt]) -> None:
        """Raise RewardError when a row lacks a column that a person's own reward needs. Scores nothing."""
        self.start()
        self._needs.result().check(prompts)

    def score(self, prompt: Prompt, completions: Sequence[Completion]) -> list[Score]:
        """One score for each completion, in their order. Waits; see `submit`."""
        return self.submit(prompt, completions).result()

    def submit(self, prompt: Prompt, completions: Sequence[Completion]) -> Future[list[Score]]:
        """Begin to score one group; the future gives one score for each completion, in their order.

        The future raises RewardError when the reward function raised, broke its contract, or the row has no
        usable answer.
        """
        self.start()
        future: Future[list[Score]] = Future()
        if not completions:
            future.set_result([])
            return future
        group = _PendingGroup(prompt, len(completions), future)
        with self._lock:
            if self._closed:
                raise RewardError("the reward pool is closed", fix="make a new RewardPool")
            self._pending.add(group)
        samples = tuple(enumerate(completions))
        size = len(samples)
        if not self._needs.result().whole_group:
            size = math.ceil(size / (_PORTIONS_PER_WORKER * len(self._workers)))
        for begin in range(0, len(samples), size):
            self._portions.put(_Portion(group, samples[begin : begin + size]))
        return future

    def close(self) -> None:
        """Kill the workers. Groups still being scored end with RewardError."""
        with self._lock:
            self._closed = True
            pending, self._pending = self._pending, set()
            threads, self._threads = self._threads, []
        for _ in threads:
            self._portions.put(None)
        for worker in self._workers:
            worker.close()
        for group in pending:
            _resolve(group.future, RewardError("the reward pool was closed before the group was scored"))
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _serve(self, worker: WorkerProcess) -> None:
        """A worker's thread, from its first start to the pool's end."""
        try:
            self._prepare(worker)
            while (portion := self._portions.get()) is not None:
                if portion.group.future.done():
                    continue
                self._score_portion(worker, portion)
        finally:
            worker.release()

    def _prepare(self, worker: WorkerProcess) -> None:
        """The first start. The first worker to be ready, or to fail, decides for the pool."""
        try:
            outcome: Any = worker.start()
        except Exception as error:
            worker.release()
            outcome = error
        with self._lock:
            if not self._needs.done():
                _resolve(self._needs, outcome)

    def _score_portion(self, worker: WorkerProcess, portion: _Portion) -> None:
        """Score what can be scored; what is left after a killed worker goes back into the queue."""
        samples = portion.samples
        step = len(samples) if self._needs.result().whole_group else 1
        done = 0
        try:
            if not worker.alive:  # killed over the answer before, or from outside
                worker.release()
                worker.start()
            limit_s = self._settings.reward_timeout_s * step
            worker.send((portion.group.prompt, samples), limit_s)
            while done < len(samples):
                batch = samples[done : done + step]
                done += step
                reply = worker.receive(limit_s)
                self._settle(portion.group, batch, reply)
                if reply.get("failed") == "memory":
                    worker.release()
                    break
        except WorkerFailed as failure:
            worker.release()
            done = max(done, step)
            batch = samples[done - step : done]
            self._settle(portion.group, batch, {"failed": failure.reason, "detail": failure.detail})
        except Exception as error:
            worker.release()
            return self._fail(portion.group, error)
        if done < len(samples):
            self._portions.put(_Portion(portion.group, samples[done:]))
        return None

    def _settle(self, group: _PendingGroup, batch: Sequence[Sample], reply: Mapping[str, Any]) -> None:
        """Take over what a worker said about one batch of samples."""
        if "error" in reply:
            return self._fail(group, RewardError(reply["error"], fix=reply["fix"]))
        scores: list[Score | None] = [None] * len(batch)
        if "scores" in reply:
            scores = [Score(float(value), metrics) for value, metrics in reply["scores"]]
        else:
            self._report(group.prompt, batch, reply)
        with self._lock:
            for (index, _), score in zip(batch, scores, strict=True):
                group.settle(index, score)
            if "failed" in reply:
                self._failures[reply["failed"]] += len(batch)
            if group.finish(self._metrics):
                self._pending.discard(group)
        return None

    def _report(self, prompt: Prompt, batch: Sequence[Sample], reply: Mapping[str, Any]) -> None:
        if self._closed:
            return
        for index, completion in batch:
            _log.warning(
                "row %d, sample %d scored 0.0 unjudged (%s: %s): %r",
                *(prompt.index, index, reply["failed"], reply["detail"], shortened(completion.text)),
            )

    def _fail(self, group: _PendingGroup, error: Exception) -> None:
        with self._lock:
            self._pending.discard(group)
        _resolve(group.future, error)


def _setup(settings: RewardSettings) -> Setup:
    path, function = (None, None) if settings.reward_fn_path is None else split_path(settings.reward_fn_path)
    return Setup(settings.reward, path, function, settings.reward_memory_mb)


def _resolve(future: Future[Any], outcome: Any) -> None:
    """Give a future its result or error, unless it has one: a group can fail in two portions, or be cancelled."""
    try:
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    except InvalidStateError:
        pass
