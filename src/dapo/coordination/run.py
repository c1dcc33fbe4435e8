"""The run loop: the paper's Algorithm 1, read from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dapo.checkpoints.random_states import random_states, restore_random_states, seed_random_states
from dapo.checkpoints.run_state import RunState
from dapo.config import RunConfig
from dapo.coordination.generation import ScoredGeneration
from dapo.coordination.held_out import measure_held_out
from dapo.coordination.introduction import PROMPTS_SHOWN, introduce, show_graded, show_prompts
from dapo.coordination.length import EpochNotices, Length, smaller_batch
from dapo.coordination.parts import Parts, assemble
from dapo.coordination.resume import Resume
from dapo.coordination.saving import Saving
from dapo.coordination.step_metrics import Value, collection_metrics, reward_metrics, update_metrics, work_metrics
from dapo.coordination.stopping import StopRequest
from dapo.errors import DapoError, DataError
from dapo.records import TrainedTokens
from dapo.sampling.alike import alike
from dapo.sampling.dynamic_sampler import Collection, DynamicSampler
from dapo.sampling.group_buffer import Buffered
from dapo.tracking.alarms import Alarms
from dapo.tracking.display import BeforeAfter, CollectionProgress, Display, Outcome
from dapo.training.batch import Answer, JudgedGroup, answers_of, by_group, judge_groups
from dapo.training.settings import learning_rate
from dapo.training.update import UpdateStats

Trained = Sequence[Sequence[TrainedTokens | None] | None]
"""What the loss saw of each answer, group by group; None where it saw none."""


def train(
    config: RunConfig, display: Display, *, resume: Resume | None = None, stop: StopRequest | None = None
) -> Path:
    """Train as the settings say; returns the run folder, with the trained model in `final/`.

    resume: go on with an earlier run. stop: whether the run was asked to stop early; it is then saved, without
    `final/`.
    """
    stop = stop or StopRequest()
    with assemble(config, display, resume) as parts, stop.listening():
        return Run(parts, display, stop).train()


class Run:
    """One run from its first update, or from a checkpoint, to its last."""

    def __init__(self, parts: Parts, display: Display, stop: StopRequest) -> None:
        self.parts = parts
        self.config = parts.config
        self.display = display
        self.stop = stop
        self.generation = ScoredGeneration(
            parts.engine,
            parts.rewards,
            self.config.rollout.sampling,
            self.config.run.seed,
            parts.clock,
            self._show_collection,
        )
        state = parts.resumed.state if parts.resumed else None
        self.sampler = DynamicSampler(
            self.config.collection,
            parts.stream,
            self.generation,
            filtering=parts.algorithm.dynamic_sampling,
            buffered=[Buffered(group, group.version) for group in state.buffered] if state else (),
        )
        self.updates = state.updates if state else 0
        """Updates made: the version of the present weights."""
        parts.engine.load(self.updates)
        filtering = parts.algorithm.dynamic_sampling
        self.length = Length(self.config.run, parts.stream, self.config.collection.batch_size, filtering)
        self._epochs = EpochNotices(parts.stream)
        self._rollout_tokens = 0
        """Drawn so far, for training."""
        self._alarms = Alarms(self.config.alarms)
        self._held_out: dict[int, dict[str, Value]] = {}
        """The results that were written, by step."""
        for line in parts.history:
            self._remember(line)
        self.skipped_updates = state.skipped_updates if state else 0
        self._failures_before = state.reward_failures if state else 0
        self._boundary = state
        """The run right after the last update. What is saved is this, so that a collection that is given up, or
        that finds the data at its end, is done again by whoever goes on."""
        self.saving = Saving(
            self.config.run, parts.folder, parts.checkpoints, parts.model, parts.trainer, display.warning, saved=state
        )
        self._accounted = time.perf_counter()
        """Until when time is in the metrics."""
        self._collection_began = self._accounted
        self._tokens_before = 0

    def train(self) -> Path:
        self._introduce()
        before = self._begin()
        self._accounted = time.perf_counter()
        after: dict[str, Value] = {}
        example = ""
        while self._goes_on:
            collection = self._collect()
            if not collection.groups:
                self._log_rollouts(collection, self.updates + 1)  # for the update that the data did not reach
                example = alike(collection.generated)
                break
            after = self._step(collection)
            self._boundary = self._state(after)
            if self._save_due:
                self.saving.checkpoint(self._boundary)
        if self.stop.signal is not None:
            self.display.notice(self.saving.stopped(self._boundary, "train"))
            return self.parts.folder.path
        if not self.updates:
            raise DataError(
                f"the data ended before one update: {self.sampler.counts.generated} groups, none of which disagreed",
                fix=f"use more prompts, or ones that the model solves sometimes{example and '; ' + example}",
            )
        if before and not after:
            after = self._recorded(self.updates) or self._measure_at_the_end()
        self.saving.checkpoint(self._boundary)
        self.saving.export()
        self._conclude(before, after)
        return self.parts.folder.path

    def _begin(self) -> dict[str, Value]:
        """Set every generator of random numbers; returns the held-out result before training, if there is one."""
        if self.parts.resumed is None:
            seed_random_states(self.config.run.seed)
            before = self._measure()
            if before:
                self._write(0, before)
            return before
        state = self.parts.resumed.state
        restore_random_states(dict(state.random))
        if self._limit_reached:
            self.display.notice(
                f"nothing is left to do: {self.updates} updates are made, {self._limit_reached} is reached"
            )
        comparable = self.parts.held_out is not None and state.fingerprint.held_out == self.parts.fingerprint.held_out
        return self._recorded(0) if comparable else {}

    @property
    def _goes_on(self) -> bool:
        return self.stop.signal is None and self._limit_reached is None

    @property
    def _limit_reached(self) -> str | None:
        """The setting that ends the run here; None while it goes on."""
        run = self.config.run
        if run.max_steps is not None and self.updates >= run.max_steps:
            return "max_steps"
        if run.max_rollout_tokens is not None and self._rollout_tokens >= run.max_rollout_tokens:
            return "max_rollout_tokens"
        return None

    def _collect(self) -> Collection:
        """The groups of the next update. A run that fails here loses nothing: it is saved as it was before."""
        self._collection_began, self._tokens_before = time.perf_counter(), self.parts.engine.counters.sampled_tokens
        try:
            return self.sampler.next_batch(self.updates)
        except DapoError:
            if self.updates:
                try:
                    self.saving.checkpoint(self._boundary)
                    self.saving.export()
                except DapoError as second:
                    self.display.warning(second.problem)
            raise

    def _step(self, collection: Collection) -> dict[str, Value]:
        """One update and what is written of it; returns the held-out result, if one was due."""
        limit = self.parts.engine.limit(self.config.rollout.max_new_tokens)
        if not self.updates:
            show_graded(collection.groups[0], self.display)
        self._say_where_the_data_is(len(collection.groups))
        judged = judge_groups(collection.groups, self.parts.algorithm, limit)
        metrics, trained = self._update(judged)
        self.updates += 1
        self.parts.engine.load(self.updates)
        metrics |= self._account(collection, judged, metrics)
        measured = self._measure() if self._measurement_due else {}
        self._write(self.updates, metrics | measured)
        self._log_rollouts(collection, self.updates, judged, trained)
        return measured

    def _say_where_the_data_is(self, groups: int) -> None:
        begun = self._epochs.new()
        if begun:
            self.display.notice(begun)
        wanted = self.config.collection.batch_size
        if groups < wanted and self.parts.stream.exhausted:
            self.display.notice(smaller_batch(self.updates + 1, groups, wanted, "groups"))

    def _state(self, measured: Mapping[str, Value]) -> RunState:
        return RunState(
            updates=self.updates,
            position=self.parts.stream.position,
            buffered=tuple(kept.group for kept in self.sampler.buffer.kept),
            skipped_updates=self.skipped_updates,
            skipped_in_a_row=self.parts.trainer.skipped_in_a_row,
            reward_failures=self._reward_failures,
            random=random_states(),
            fingerprint=self.parts.fingerprint,
            threads=torch.get_num_threads(),
            heldout_accuracy=measured.get("heldout_accuracy"),
        )

    @property
    def _reward_failures(self) -> int:
        return self._failures_before + sum(self.parts.rewards.failures.values())

    @property
    def _save_due(self) -> bool:
        run, state = self.config.run, self._boundary
        if run.save_interval and self.updates % run.save_interval == 0:
            return True
        if not run.keep_best or state is None or state.heldout_accuracy is None:
            return False
        best = self.parts.checkpoints.best()
        return best is None or state.heldout_accuracy >= best[1]

    def _recorded(self, step: int) -> dict[str, Value]:
        """The held-out result that was written for a step; empty when there is none."""
        return self._held_out.get(step, {})

    def _measure_at_the_end(self) -> dict[str, Value]:
        """The data ended where it could not be foreseen, so the last update was not measured in time."""
        measured = self._measure()
        self._write(self.updates, measured)
        if self._boundary is not None:
            self._boundary = replace(self._boundary, heldout_accuracy=measured["heldout_accuracy"])
        return measured

    @property
    def _measurement_due(self) -> bool:
        """Every eval_interval updates, and after the last one as far as it can be known."""
        run = self.config.run
        if run.eval_interval is not None and self.updates % run.eval_interval == 0:
            return True
        return self._limit_reached is not None or (self.parts.stream.exhausted and not len(self.sampler.buffer))

    def _introduce(self) -> None:
        introduce(self.parts, self.display, self.length, self.updates, len(self.sampler.buffer))
        if not self.updates:
            show_prompts(self.parts.stream.first(PROMPTS_SHOWN), self.display)

    def _update(self, judged: list[JudgedGroup]) -> tuple[dict[str, Value], Trained]:
        """One update on the judged groups, its metrics and what the loss saw of each answer; without a gradient when
        no answer is better than another."""
        lr = learning_rate(self.config.training, self.updates, self.config.run.max_steps)
        answers = answers_of(judged, self.parts.algorithm)
        if not any(answer.advantage for answer in answers):
            self.display.warning(f"update {self.updates + 1} is skipped: {_nothing_to_learn(judged, answers)}")
            return {"loss": 0.0, "lr": lr, "optimizer_steps": 0, "trained_tokens": 0}, [None] * len(judged)
        started = time.perf_counter()
        stats: UpdateStats = self.parts.trainer.update(answers, lr, self.display.updating)
        self.parts.clock.add("update", started)
        self.skipped_updates += len(stats.skipped)
        for skipped in stats.skipped:
            self.display.warning(f"an optimizer step of update {self.updates + 1} is skipped: {skipped}")
        return update_metrics(stats, lr), by_group(judged, self.parts.algorithm, stats.trained)

    def _account(self, collection: Collection, judged: list[JudgedGroup], update: dict[str, Value]) -> dict[str, Value]:
        """What there is to say of this update besides the optimizer steps."""
        parts = self.parts
        tokens = parts.engine.counters.sampled_tokens - self._tokens_before
        before, self._accounted = self._accounted, time.perf_counter()
        return {
            **collection_metrics(collection, len(self.sampler.buffer)),
            **reward_metrics(collection, judged),
            **work_metrics(parts.clock.take(), self._accounted - before, tokens, int(update["trained_tokens"] or 0)),
            "reward_failures": self._reward_failures,
            "skipped_updates": self.skipped_updates,
            "epoch": parts.stream.epoch,
        }

    def _write(self, step: int, metrics: dict[str, Value]) -> None:
        self.parts.metrics.write(step, metrics)
        self.display.step_done(step, metrics)
        for alarm in self._remember({"step": step, **metrics}):
            self.display.warning(alarm)

    def _remember(self, line: Mapping[str, Any]) -> list[str]:
        """Take what the run goes by from a line of its metrics; returns what it warns of."""
        self._rollout_tokens += line.get("rollout_tokens") or 0
        if "heldout_accuracy" in line:
            names = ("heldout_accuracy", "heldout_response_length")
            self._held_out[line["step"]] = {name: line[name] for name in names}
        return self._alarms.see(line)

    def _log_rollouts(
        self, collection: Collection, step: int, judged: Sequence[JudgedGroup] = (), trained: Trained = ()
    ) -> None:
        for group, tokens in zip(judged, trained, strict=True):
            self.parts.rollouts.write(step, group.group, "trained", group.penalties, group.advantages, tokens)
        for other, fate in collection.others:
            self.parts.rollouts.write(step, other, fate)

    def _measure(self) -> dict[str, Value]:
        """Accuracy on the held-out data; empty when there is none."""
        if self.parts.held_out is None:
            return {}
        result = measure_held_out(
            self.parts.engine,
            self.parts.rewards,
            self.parts.held_out.prompts,
            replace(self.config.rollout.sampling, n=self.config.run.eval_n),
            self.config.run.seed,
            self.display.evaluating,
        )
        return {"heldout_accuracy": result.accuracy, "heldout_response_length": result.response_length}

    def _show_collection(self) -> None:
        counts, settings = self.sampler.counts, self.config.collection
        counters = self.parts.engine.counters
        self.display.collecting(
            CollectionProgress(
                step=self.updates + 1,
                round=counts.rounds,
                max_rounds=settings.dapo_max_num_gen_batches if self.parts.algorithm.dynamic_sampling else 1,
                groups_kept=len(self.sampler.buffer),
                groups_needed=settings.batch_size,
                groups_generated=counts.generated,
                all_correct=counts.all_correct,
                all_wrong=counts.all_wrong,
                sequences_done=self.generation.sequences_done,
                sequences_total=self.generation.sequences_asked,
                tokens=counters.sampled_tokens - self._tokens_before,
                seconds=time.perf_counter() - self._collection_began,
            )
        )

    def _conclude(self, before: Mapping[str, Value], after: Mapping[str, Value]) -> None:
        labels = {"held-out accuracy": "heldout_accuracy", "tokens per answer": "heldout_response_length"}
        rows = [
            BeforeAfter(label, name, before.get(name), after.get(name))
            for label, name in labels.items()
            if before and after
        ]
        folder = self.parts.folder
        cosine = self.config.training.lr_schedule == "cosine"
        ending = self.length.ending("train", folder.path, self.updates, self._limit_reached, fixed_end=cosine)
        self.display.finish(Outcome(rows, {"model": str(folder.final), "metrics": str(folder.metrics)}, ending))


def _nothing_to_learn(judged: Sequence[JudgedGroup], answers: Sequence[Answer]) -> str:
    """Why no answer has an advantage."""
    if not answers:
        return "overlong filtering leaves nothing, since every answer was cut at the limit"
    if any(advantage for group in judged for advantage in group.advantages):
        return "no answer that overlong filtering leaves is better or worse than its group"
    example = alike([group.group for group in judged])
    return f"every group agrees, so nothing can be learned{example and '; ' + example}"
