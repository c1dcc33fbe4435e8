"""Supervised warm start: the loop of `dapo sft`, with the trainer, checkpoints and run folder of `dapo train`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from dapo.checkpoints.random_states import random_states, restore_random_states, seed_random_states
from dapo.checkpoints.run_state import RunState
from dapo.coordination.length import EpochNotices, Length, smaller_batch
from dapo.coordination.resume import Resume
from dapo.coordination.saving import Saving
from dapo.coordination.sft_parts import SftParts, assemble
from dapo.coordination.sft_settings import SftConfig
from dapo.coordination.step_metrics import Value
from dapo.coordination.stopping import StopRequest
from dapo.data.demonstrations import Demonstration
from dapo.records import Draw
from dapo.tracking.display import SUPERVISED, BeforeAfter, Display, Outcome
from dapo.training.batch import Answer
from dapo.training.packing import pack
from dapo.training.plan import AnswerSize, plan_passes
from dapo.training.settings import learning_rate
from dapo.training.update import Trainer, UpdateStats

_LARGEST_EXPONENT = 709.0
"""exp of more does not fit into a float64."""


def train_supervised(
    config: SftConfig, display: Display, *, resume: Resume | None = None, stop: StopRequest | None = None
) -> Path:
    """Learn the demonstrations as the settings say; returns the run folder, with the trained model in `final/`.

    resume: go on with an earlier run. stop: whether the run was asked to stop early; it is then saved, without
    `final/`.
    """
    stop = stop or StopRequest()
    with assemble(config, display, resume) as parts, stop.listening():
        return SftRun(parts, display, stop).train()


def mean_loss(
    trainer: Trainer,
    demonstrations: Sequence[Demonstration],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> float:
    """Mean negative log-likelihood of all answer tokens, in nats: the loss of an update that is not made.

    progress: called with demonstrations done and in all.
    """
    answers = [Answer(number, each.prompt, each.completion, 1.0) for number, each in enumerate(demonstrations)]
    total, tokens, done = 0.0, 0, 0
    progress(done, len(answers))
    sizes = [AnswerSize.of(answer) for answer in answers]
    (passes,) = plan_passes(sizes, mini_bs=len(answers), max_tokens=trainer.settings.max_tokens_per_pass)
    with torch.no_grad():
        for places in passes:
            part = [answers[place] for place in places]
            packed = pack(part, trainer.algorithm, trainer.max_new_tokens, trainer.model.attention)
            logp, _ = trainer.score(packed)
            total -= logp.double().sum().item()
            tokens += len(logp)
            done += len(part)
            progress(done, len(answers))
    return total / tokens


class SftRun:
    """One supervised run from its first update, or from a checkpoint, to its last."""

    def __init__(self, parts: SftParts, display: Display, stop: StopRequest) -> None:
        self.parts = parts
        self.config = parts.config
        self.display = display
        self.stop = stop
        state = parts.resumed.state if parts.resumed else None
        self.updates = state.updates if state else 0
        """Updates made."""
        self.length = Length(self.config.run, parts.stream, self.config.sft.batch_size, filtering=False)
        self.total = self.length.total(self.updates) or 0
        """Updates of the whole run."""
        self._epochs = EpochNotices(parts.stream)
        self.skipped_updates = state.skipped_updates if state else 0
        self._boundary = state
        """The run right after the last update."""
        self.saving = Saving(
            self.config.run, parts.folder, parts.checkpoints, parts.model, parts.trainer, display.warning, saved=state
        )

    def train(self) -> Path:
        self._introduce()
        before = self._begin()
        after = self._recorded(self.updates)
        while self.stop.signal is None and self.updates < self.total:
            after = self._step()
            interval = self.config.run.save_interval
            if interval and self.updates % interval == 0:
                self.saving.checkpoint(self._boundary)
        if self.stop.signal is not None:
            self.display.notice(self.saving.stopped(self._boundary, "sft"))
            return self.parts.folder.path
        self.saving.checkpoint(self._boundary)
        self.saving.export()
        self._conclude(before, after)
        return self.parts.folder.path

    def _introduce(self) -> None:
        config, parts = self.config, self.parts
        facts = {
            "model": f"{config.model.ckpt} ({str(parts.model.dtype).removeprefix('torch.')}, {parts.model.device})",
            "data": f"{config.data.dataset_path or config.data.dataset_loader_fn} ({len(parts.stream)} demonstrations)",
            "update": f"{config.sft.batch_size} demonstrations, 1 optimizer step",
            "length": self.length.fact(self.updates),
            "run folder": str(parts.folder.path),
        }
        self.display.start("learning from demonstrations", facts, self.total, SUPERVISED)
        warning = self.length.warning(self.updates)
        if warning:
            self.display.warning(warning)

    def _begin(self) -> dict[str, Value]:
        """Set every generator of random numbers; returns the held-out loss before training, if there is one."""
        if self.parts.resumed is None:
            seed_random_states(self.config.run.seed)
            before = self._measure()
            if before:
                self._write(0, before)
            return before
        state = self.parts.resumed.state
        restore_random_states(dict(state.random))
        if self.updates >= self.total:
            self.display.notice(f"nothing is left to do: {self.updates} updates are made, the end is reached")
        return self._recorded(0) if state.fingerprint.held_out == self.parts.fingerprint.held_out else {}

    def _step(self) -> dict[str, Value]:
        """One update and what is written of it; returns the held-out loss, if it was due."""
        began = time.perf_counter()
        draws = self._take()
        answers = [Answer(draw.id, draw.prompt, self.parts.answers[draw.prompt.index], 1.0) for draw in draws]
        stats = self.parts.trainer.update(answers, self._lr(), self.display.updating)
        seconds = time.perf_counter() - began
        self.skipped_updates += len(stats.skipped)
        for skipped in stats.skipped:
            self.display.warning(f"update {self.updates + 1} is skipped: {skipped}")
        metrics = self._metrics(stats, seconds)
        self.updates += 1
        run = self.config.run
        due = self.updates == self.total or (run.eval_interval and self.updates % run.eval_interval == 0)
        measured = self._measure() if due else {}
        self._write(self.updates, metrics | measured)
        self._boundary = self._state()
        return measured

    def _take(self) -> list[Draw]:
        """The demonstrations of the next update; where the data begins anew or ends is said."""
        wanted = self.config.sft.batch_size
        draws = self.parts.stream.take(wanted)
        begun = self._epochs.new()
        if begun:
            self.display.notice(begun)
        if len(draws) < wanted:
            self.display.notice(smaller_batch(self.updates + 1, len(draws), wanted, "demonstrations"))
        return draws

    def _lr(self) -> float:
        """A cosine ends at max_steps or, where that is not set, with the data."""
        return learning_rate(self.config.training, self.updates, self.config.run.max_steps or self.total)

    def _metrics(self, stats: UpdateStats, seconds: float) -> dict[str, Value]:
        """The loss is that of the weights before the update."""
        loss = -stats.train_logprob
        return {
            "loss": loss,
            "perplexity": math.exp(loss) if loss < _LARGEST_EXPONENT else math.inf,
            "grad_norm": stats.grad_norm,
            "lr": self._lr(),
            "entropy": stats.entropy,
            "optimizer_steps": stats.optimizer_steps,
            "trained_tokens": stats.tokens,
            "train_tokens_per_s": stats.tokens / seconds,
            "seconds_update": seconds,
            "seconds_total": seconds,
            "skipped_updates": self.skipped_updates,
            "epoch": self.parts.stream.epoch,
        }

    def _measure(self) -> dict[str, Value]:
        """Loss on the held-out demonstrations; empty when there are none."""
        if not self.parts.held_out:
            return {}
        return {"heldout_loss": mean_loss(self.parts.trainer, self.parts.held_out, self.display.evaluating)}

    def _write(self, step: int, metrics: dict[str, Value]) -> None:
        self.parts.metrics.write(step, metrics)
        self.parts.history.append({"step": step, **metrics})
        self.display.step_done(step, metrics)

    def _recorded(self, step: int) -> dict[str, Value]:
        """The held-out loss that was written for a step; empty when there is none."""
        lines = [line for line in self.parts.history if line["step"] == step and "heldout_loss" in line]
        return {"heldout_loss": lines[-1]["heldout_loss"]} if lines else {}

    def _state(self) -> RunState:
        return RunState(
            updates=self.updates,
            position=self.parts.stream.position,
            buffered=(),
            skipped_updates=self.skipped_updates,
            skipped_in_a_row=self.parts.trainer.skipped_in_a_row,
            reward_failures=0,
            random=random_states(),
            fingerprint=self.parts.fingerprint,
            threads=torch.get_num_threads(),
        )

    def _conclude(self, before: Mapping[str, Value], after: Mapping[str, Value]) -> None:
        rows = []
        if before and after:
            rows = [BeforeAfter("held-out loss", "heldout_loss", before["heldout_loss"], after["heldout_loss"])]
        folder = self.parts.folder
        run, cosine = self.config.run, self.config.training.lr_schedule == "cosine"
        limit = "max_steps" if run.max_steps is not None and self.updates >= run.max_steps else None
        ending = self.length.ending("sft", folder.path, self.updates, limit, fixed_end=cosine)
        self.display.finish(Outcome(rows, {"model": str(folder.final), "metrics": str(folder.metrics)}, ending))
