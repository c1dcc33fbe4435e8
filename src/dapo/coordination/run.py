"""The run loop: the paper's Algorithm 1, read from top to bottom."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from dapo.config import RunConfig
from dapo.coordination.generation import ScoredGeneration
from dapo.coordination.held_out import HeldOutResult, measure_held_out
from dapo.coordination.parts import Parts, assemble
from dapo.coordination.step_metrics import Value, collection_metrics, reward_metrics, time_metrics, update_metrics
from dapo.errors import DataError
from dapo.models.loading import save_model
from dapo.sampling.dynamic_sampler import Collection, DynamicSampler
from dapo.tracking.display import BeforeAfter, CollectionProgress, Display, Outcome
from dapo.training.batch import JudgedGroup, answers_of, judge_groups
from dapo.training.settings import learning_rate
from dapo.training.update import UpdateStats


def train(config: RunConfig, display: Display) -> Path:
    """Train as the settings say; returns the run folder, with the trained model in `final/`."""
    with assemble(config, display) as parts:
        return Run(parts, display).train()


class Run:
    """One run from its first update to its last."""

    def __init__(self, parts: Parts, display: Display) -> None:
        self.parts = parts
        self.config = parts.config
        self.display = display
        self.generation = ScoredGeneration(
            parts.engine,
            parts.rewards,
            self.config.rollout.sampling,
            self.config.run.seed,
            parts.clock,
            self._show_collection,
        )
        self.sampler = DynamicSampler(
            self.config.collection, parts.stream, self.generation, filtering=parts.algorithm.dynamic_sampling
        )
        self.updates = 0
        """Updates made: the version of the present weights."""
        self._step_began = time.perf_counter()
        self._tokens_before = 0

    def train(self) -> Path:
        self._introduce()
        before = self._measure()
        if before is not None:
            self._write(0, _held_out_metrics(before))
        after = None
        try:
            while self.updates != self.config.run.max_steps:
                self._step_began, self._tokens_before = time.perf_counter(), self.parts.engine.counters.sampled_tokens
                collection = self.sampler.next_batch(self.updates)
                if collection is None:
                    break
                judged = judge_groups(collection.groups, self.parts.algorithm, self.config.rollout.max_new_tokens)
                metrics = self._update(judged)
                self.updates += 1
                metrics |= self._account(collection, judged, metrics)
                after = self._measure() if self._measurement_due else None
                self._write(self.updates, metrics | _held_out_metrics(after))
                self._log_rollouts(collection, judged)
        finally:
            if self.updates:
                save_model(self.parts.model, self.parts.folder.final)
        if not self.updates:
            raise DataError(
                f"the data ended before one update: {self.sampler.counts.generated} groups, none of which disagreed",
                fix="use more prompts, or ones that the model solves sometimes",
            )
        if after is None and before is not None:
            after = self._measure()
            self._write(self.updates, _held_out_metrics(after))
        self._conclude(before, after)
        return self.parts.folder.path

    @property
    def _measurement_due(self) -> bool:
        """Every eval_interval updates, and after the last one as far as it can be known."""
        run = self.config.run
        if run.eval_interval is not None and self.updates % run.eval_interval == 0:
            return True
        return self.updates == run.max_steps or (self.parts.stream.exhausted and not len(self.sampler.buffer))

    def _introduce(self) -> None:
        config, parts = self.config, self.parts
        steps = config.training.optimizer_steps(config.collection.batch_size * config.rollout.n_samples)
        facts = {
            "model": f"{config.model.ckpt} ({str(parts.model.dtype).removeprefix('torch.')}, {parts.model.device})",
            "data": f"{config.data.dataset_path or config.data.dataset_loader_fn} ({len(parts.stream)} prompts)",
            "update": f"{config.collection.batch_size} groups of {config.rollout.n_samples}, {steps} optimizer steps",
            "run folder": str(parts.folder.path),
        }
        self.display.start(f"dapo train: {parts.algorithm.name}", facts, config.run.max_steps)
        if steps == 1 and parts.algorithm.clip is not None:
            self.display.warning(
                "each update is one optimizer step, taken where every ratio is still 1: the clip cannot act; "
                "lower mini_bs or gradient_accumulation_steps to make more"
            )

    def _update(self, judged: list[JudgedGroup]) -> dict[str, Value]:
        """One update on the judged groups; without a gradient when no answer is better than another."""
        lr = learning_rate(self.config.training, self.updates, self.config.run.max_steps)
        answers = answers_of(judged, self.parts.algorithm)
        if not any(answer.advantage for answer in answers):
            self.display.warning(f"update {self.updates + 1} is skipped: every group agrees, so nothing can be learned")
            return {"loss": 0.0, "lr": lr, "optimizer_steps": 0, "trained_tokens": 0}
        started = time.perf_counter()
        stats: UpdateStats = self.parts.trainer.update(answers, lr, self.display.updating)
        self.parts.clock.add("update", started)
        return update_metrics(stats, lr)

    def _account(self, collection: Collection, judged: list[JudgedGroup], update: dict[str, Value]) -> dict[str, Value]:
        """What there is to say of this update besides the optimizer steps."""
        parts = self.parts
        tokens = parts.engine.counters.sampled_tokens - self._tokens_before
        seconds = time.perf_counter() - self._step_began
        return {
            **collection_metrics(collection, len(self.sampler.buffer)),
            **reward_metrics(collection, judged, self.updates - 1),
            **time_metrics(parts.clock.take(), seconds, tokens, int(update["trained_tokens"] or 0)),
            "reward_failures": sum(parts.rewards.failures.values()),
            "epoch": parts.stream.epoch,
        }

    def _write(self, step: int, metrics: dict[str, Value]) -> None:
        self.parts.metrics.write(step, metrics)
        self.display.step_done(step, metrics)

    def _log_rollouts(self, collection: Collection, judged: list[JudgedGroup]) -> None:
        for group in judged:
            self.parts.rollouts.write(self.updates, group.group, "trained", group.penalties, group.advantages)
        for other, fate in collection.others:
            self.parts.rollouts.write(self.updates, other, fate, None, None)

    def _measure(self) -> HeldOutResult | None:
        """Accuracy on the held-out data, if there is any."""
        if self.parts.held_out is None:
            return None
        return measure_held_out(
            self.parts.engine,
            self.parts.rewards,
            self.parts.held_out.prompts,
            replace(self.config.rollout.sampling, n=self.config.run.eval_n),
            self.config.run.seed,
            self.display.evaluating,
        )

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
                seconds=time.perf_counter() - self._step_began,
            )
        )

    def _conclude(self, before: HeldOutResult | None, after: HeldOutResult | None) -> None:
        rows = []
        if before is not None and after is not None:
            rows = [
                BeforeAfter("held-out accuracy", "heldout_accuracy", before.accuracy, after.accuracy),
                BeforeAfter(
                    "tokens per answer", "heldout_response_length", before.response_length, after.response_length
                ),
            ]
        folder = self.parts.folder
        self.display.finish(Outcome(rows, {"model": str(folder.final), "metrics": str(folder.metrics)}))


def _held_out_metrics(result: HeldOutResult | None) -> dict[str, Value]:
    if result is None:
        return {}
    return {"heldout_accuracy": result.accuracy, "heldout_response_length": result.response_length}
