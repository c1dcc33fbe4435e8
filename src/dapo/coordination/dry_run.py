"""A run that only shows what it would do: its prompts, a graded answer, one update, and what all would take."""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from dapo.algorithms.group_filters import judge
from dapo.config import RunConfig
from dapo.coordination.generation import ScoredGeneration
from dapo.coordination.introduction import PROMPTS_SHOWN, introduce, show_graded, show_prompts
from dapo.coordination.length import Length, plural
from dapo.coordination.parts import Parts, assemble
from dapo.records import Group
from dapo.tracking.display import Display
from dapo.tracking.numbers import compact, duration, rough
from dapo.tracking.run_folder import RunFolder, check_save_path
from dapo.training.batch import answers_of, judge_groups
from dapo.training.settings import learning_rate


def dry_run(config: RunConfig, display: Display) -> None:
    """Answer one batch of prompts, train on it once and report; nothing is left behind."""
    save_path = Path(config.run.save_path) if config.run.save_path else None
    check_save_path(save_path)
    with TemporaryDirectory() as place:
        elsewhere = replace(config, run=replace(config.run, save_path=str(Path(place) / "run")))
        with assemble(elsewhere, display) as parts:
            named = RunFolder(save_path or Path(f"runs/<date-time>-{parts.algorithm.name}"))
            length = Length(config.run, parts.stream, config.collection.batch_size, parts.algorithm.dynamic_sampling)
            introduce(replace(parts, config=config, folder=named), display, length, 0, 0)
            show_prompts(parts.stream.first(PROMPTS_SHOWN), display)
            groups, writing = _answered(parts)
            show_graded(max(groups, key=lambda group: max(group.rewards)), display)
            training = _trained(parts, groups)
            for line in _report(parts, length, groups, writing, training):
                display.notice(line)


def _answered(parts: Parts) -> tuple[list[Group], float]:
    """One round of answers, and the seconds it took."""
    config = parts.config
    generate = ScoredGeneration(
        parts.engine, parts.rewards, config.rollout.sampling, config.run.seed, parts.clock, lambda: None
    )
    began = time.perf_counter()
    draws = parts.stream.take(min(config.collection.batch_size, len(parts.stream)))
    groups = [group for group in generate(draws, 0) if group is not None]
    return groups, time.perf_counter() - began


def _trained(parts: Parts, groups: Sequence[Group]) -> float:
    """Seconds of one update; where no group disagrees, on advantages of 1, since only time and memory count."""
    config = parts.config
    judged = judge_groups(groups, parts.algorithm, parts.engine.limit(config.rollout.max_new_tokens))
    answers = answers_of(judged, parts.algorithm)
    if not any(answer.advantage for answer in answers):
        answers = [replace(answer, advantage=1.0) for answer in answers]
    began = time.perf_counter()
    if answers:
        lr = learning_rate(config.training, 0, config.run.max_steps)
        parts.trainer.update(answers, lr, lambda done, total: None)
    return time.perf_counter() - began


def _report(parts: Parts, length: Length, groups: Sequence[Group], writing: float, training: float) -> list[str]:
    answers = sum(len(group.completions) for group in groups)
    rate = compact(parts.engine.counters.sampled_tokens / writing)
    lines = [
        f"one update here: {duration(writing)} to write {answers} answers ({rate} tok/s), "
        f"{duration(training)} to train on them"
    ]
    disagree = sum(judge(group.rewards) == "informative" for group in groups)
    lines.append(f"{disagree} of {len(groups)} groups disagree" + ("" if disagree else ": there is nothing to learn"))
    # Every group that is dropped is answered in vain: with one in two kept, an update writes two batches.
    rounds = len(groups) / max(disagree, 1) if parts.algorithm.dynamic_sampling else 1.0
    batches = parts.config.collection.batch_size / len(groups)
    updates = length.total(0) or (length.last_update(0) or 1)
    if parts.algorithm.dynamic_sampling and parts.config.run.max_steps is None:
        updates = math.ceil(updates / rounds)
    seconds = updates * batches * (writing * rounds + training)
    lines.append(
        f"the whole run: {updates} {plural('update', updates)}, about {rough(seconds)}, without measurements "
        f"and checkpoints; {_memory(parts.model.device)}"
    )
    return lines


def _memory(device: torch.device) -> str:
    """The most that was in use so far: model, optimizer, answers and one update."""
    if device.type == "cuda":
        return f"{torch.cuda.max_memory_allocated(device) / 2**30:.1f} GiB of the GPU"
    unit = 1 if sys.platform == "darwin" else 1024
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30:.1f} GiB of memory"
