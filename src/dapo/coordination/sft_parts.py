"""What a supervised run is made of, put together in the order in which bad input shows: cheap checks first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dapo.algorithms.settings import Algorithm
from dapo.checkpoints.fingerprint import Fingerprint, decisive_settings, prompts_digest
from dapo.checkpoints.model_of_run import locate_model
from dapo.checkpoints.store import CheckpointStore
from dapo.coordination.parts import (
    device_of,
    held_out_settings,
    remaining_history,
    run_folder,
    start_time,
    starting_point,
)
from dapo.coordination.resume import Resume, ResumePoint, compare_contents
from dapo.coordination.sft_settings import SftConfig
from dapo.data.demonstrations import Demonstration, DemonstrationSet, check_solutions, encode_demonstrations
from dapo.data.prompts import PromptSet, encode_prompts
from dapo.data.settings import DataSettings
from dapo.data.sources import load_rows
from dapo.data.stream import PromptStream
from dapo.errors import ConfigError, ModelError
from dapo.models.language_model import LanguageModel
from dapo.models.loading import check_can_be_saved, load_model, load_tokenizer
from dapo.records import Completion, Prompt
from dapo.tracking.display import Display
from dapo.tracking.metrics_log import MetricsLog
from dapo.tracking.run_folder import RunFolder
from dapo.training.update import Trainer

SUPERVISED = Algorithm(
    name="sft",
    ratio="on_policy",
    ratio_level="token",
    clip=None,
    aggregation="token-mean",
    scale_advantages="none",
    adv_eps=0.0,
    adv_correction=0,
    dynamic_sampling=False,
    mask_overlong_truncated=False,
    overlong_buffer_len=0,
    overlong_penalty_factor=0.0,
)
"""Supervised learning as a policy gradient: with advantage 1 on given answers and a ratio of 1 the gradient is that of
-log p, mean over the tokens, which is the cross-entropy."""


@dataclass(frozen=True)
class SftParts:
    """The parts of one supervised run."""

    config: SftConfig
    folder: RunFolder
    model: LanguageModel
    trainer: Trainer
    stream: PromptStream
    answers: dict[int, Completion]
    """What to learn, by the index of the prompt."""
    held_out: tuple[Demonstration, ...]
    metrics: MetricsLog
    checkpoints: CheckpointStore
    fingerprint: Fingerprint
    history: list[dict[str, Any]]
    """The lines of metrics.jsonl so far."""
    resumed: ResumePoint | None
    """Where the run goes on; its weights, optimizer and data position are in the parts already."""


@contextmanager
def assemble(config: SftConfig, display: Display, resume: Resume | None = None) -> Iterator[SftParts]:
    """Build all parts and take them down again. A new run's folder is made last, so that no failure leaves one; a
    resumed run's is changed last, so that no failure alters it."""
    save_path = Path(config.run.save_path) if config.run.save_path else None
    device = device_of(config.run.train_devices, display)
    settings = decisive_settings(asdict(config))
    with ExitStack() as stack:
        point = starting_point(stack, resume, save_path, settings, display)
        sources = _sources(config)
        rows = [load_rows(source, model_hub=config.model.model_hub) for source in sources]
        for of_source in rows:
            check_solutions(of_source, config.sft.solution_key)
        location = str(point.checkpoint.model) if point else locate_model(config.model, notify=display.notice)
        tokenizer = load_tokenizer(location, config.model)
        started = start_time(resume)
        prompts = [
            encode_prompts(of_source, source, tokenizer, started)
            for of_source, source in zip(rows, sources, strict=True)
        ]
        model = load_model(location, tokenizer, config.model, device)
        check_can_be_saved(model)
        learned, *others = _demonstrations(prompts, sources, config, model)
        held_out = others[0].demonstrations if others else ()
        for notice in (*prompts[0].notices(), *(line for each in (learned, *others) for line in each.notices())):
            display.notice(notice)
        fingerprint = Fingerprint(
            settings=settings,
            data=prompts_digest(_prompts(learned.demonstrations)),
            reward=None,
            held_out=prompts_digest(_prompts(held_out)) if held_out else None,
        )
        if resume and point:
            compare_contents(point, fingerprint, resume, display.warning)
        stream = PromptStream(
            _prompts(learned.demonstrations),
            epochs=config.run.passes,
            seed=config.run.seed,
            position=point.state.position if point else 0,
            shuffle=config.sft.shuffle,
        )
        trainer = _trainer(model, config, learned.max_tokens, point)
        history = remaining_history(resume, point, display.warning) if resume else []
        folder = run_folder(stack, resume, save_path, SUPERVISED.name, config.to_toml(), started)
        yield SftParts(
            config=config,
            folder=folder,
            model=model,
            trainer=trainer,
            stream=stream,
            answers={each.prompt.index: each.completion for each in learned.demonstrations},
            held_out=held_out,
            metrics=MetricsLog(folder.metrics),
            checkpoints=CheckpointStore(folder.checkpoints),
            fingerprint=fingerprint,
            history=history,
            resumed=point,
        )


def _sources(config: SftConfig) -> list[DataSettings]:
    """The data to learn from and, where there are some, the held-out data."""
    held_out = held_out_settings(config.data, config.run)
    return [config.data] if held_out is None else [config.data, held_out]


def _demonstrations(
    prompts: Sequence[PromptSet], sources: Sequence[DataSettings], config: SftConfig, model: LanguageModel
) -> list[DemonstrationSet]:
    """The demonstrations of each source. Raises ConfigError for a limit beyond what the model carries, ModelError for a
    tokenizer that does not belong to the model."""
    exact = model.exact
    limit = config.sft.max_tokens or exact.tokens
    if limit > exact.tokens:
        raise ConfigError(
            f"max_tokens is {limit} but the model is computed rightly up to {exact.tokens}: {exact.reason}",
            fix=f"use at most {exact.tokens}, or leave max_tokens out",
        )
    sets = [
        encode_demonstrations(
            of_source.prompts,
            config.sft.solution_key,
            model.tokenizer,
            limit,
            source=str(source.dataset_path or source.dataset_loader_fn),
        )
        for of_source, source in zip(prompts, sources, strict=True)
    ]
    known = len(model.head)
    for each in (demonstration for of_source in sets for demonstration in of_source.demonstrations):
        largest = max(*each.prompt.tokens, *each.completion.tokens)
        if largest >= known:
            raise ModelError(
                f"the tokenizer makes token {largest} of row {each.prompt.index}, but the model knows only {known}",
                fix="use the tokenizer that belongs to the model",
            )
    return sets


def _prompts(demonstrations: Sequence[Demonstration]) -> list[Prompt]:
    return [each.prompt for each in demonstrations]


def _trainer(model: LanguageModel, config: SftConfig, max_tokens: int, point: ResumePoint | None) -> Trainer:
    """The trainer of `dapo train`, told that a whole update is one optimizer step."""
    passes = math.ceil(config.sft.batch_size / config.training.mini_bs)
    trainer = Trainer(
        model,
        replace(config.training, gradient_accumulation_steps=passes),
        SUPERVISED,
        temperature=1.0,
        max_new_tokens=max_tokens,
    )
    if point is not None:
        trainer.load(point.checkpoint.path)
        trainer.skipped_in_a_row = point.state.skipped_in_a_row
    return trainer
