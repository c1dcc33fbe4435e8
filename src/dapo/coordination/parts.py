"""Everything a run is made of, put together in the order in which bad input shows: cheap checks first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from dapo.algorithms.settings import Algorithm
from dapo.checkpoints.fingerprint import Fingerprint, decisive_settings, prompts_digest, reward_digest
from dapo.checkpoints.model_of_run import locate_model
from dapo.checkpoints.run_lock import only_process
from dapo.checkpoints.store import CheckpointStore
from dapo.config import RunConfig
from dapo.coordination.generation import Clock
from dapo.coordination.resume import Resume, ResumePoint, compare_contents, find_resume_point, roll_back
from dapo.coordination.settings import RunSettings
from dapo.data.prompts import PromptSet, encode_prompts
from dapo.data.settings import DataSettings
from dapo.data.sources import load_rows
from dapo.data.stream import PromptStream
from dapo.errors import ConfigError
from dapo.models.language_model import LanguageModel
from dapo.models.loading import check_can_be_saved, load_model, load_tokenizer
from dapo.records import AnswerLimit
from dapo.rewards.check import check_answers
from dapo.rewards.pool import RewardPool
from dapo.rollout.torch_engine import TorchEngine
from dapo.tracking.display import Display
from dapo.tracking.metrics_log import MetricsLog, read_metrics
from dapo.tracking.rollout_log import RolloutLog
from dapo.tracking.run_folder import RunFolder, check_save_path
from dapo.training.update import Trainer
from dapo.user_file import split_path


@dataclass(frozen=True)
class Parts:
    """The parts of one run. Engine and trainer share the model."""

    config: RunConfig
    algorithm: Algorithm
    folder: RunFolder
    model: LanguageModel
    engine: TorchEngine
    trainer: Trainer
    rewards: RewardPool
    stream: PromptStream
    held_out: PromptSet | None
    clock: Clock
    metrics: MetricsLog
    rollouts: RolloutLog
    checkpoints: CheckpointStore
    fingerprint: Fingerprint
    history: list[dict[str, Any]]
    """The lines of metrics.jsonl so far."""
    resumed: ResumePoint | None
    """Where the run goes on; its weights, optimizer and data position are in the parts already."""


@contextmanager
def assemble(config: RunConfig, display: Display, resume: Resume | None = None) -> Iterator[Parts]:
    """Build all parts and take them down again. A new run's folder is made last, so that no failure leaves one; a
    resumed run's is changed last, so that no failure alters it."""
    algorithm = Algorithm.of(config.algorithm)
    save_path = Path(config.run.save_path) if config.run.save_path else None
    device = device_of(config.run.train_devices, display)
    settings = decisive_settings(asdict(config))
    with ExitStack() as stack:
        point = starting_point(stack, resume, save_path, settings, display)
        rows = load_rows(config.data, model_hub=config.model.model_hub)
        held_out_data = held_out_settings(config.data, config.run)
        held_out_rows = load_rows(held_out_data, model_hub=config.model.model_hub) if held_out_data else []
        rewards = stack.enter_context(RewardPool(config.reward))
        rewards.start()
        location = str(point.checkpoint.model) if point else locate_model(config.model, notify=display.notice)
        tokenizer = load_tokenizer(location, config.model)
        started = start_time(resume)
        prompts = encode_prompts(rows, config.data, tokenizer, started)
        held_out = encode_prompts(held_out_rows, held_out_data, tokenizer, started) if held_out_data else None
        every_prompt = [*prompts.prompts, *(held_out.prompts if held_out else ())]
        check_answers(config.reward, every_prompt)
        rewards.check(every_prompt)
        for notice in prompts.notices():
            display.notice(notice)
        fingerprint = _fingerprint(config, settings, prompts, held_out)
        if resume and point:
            compare_contents(point, fingerprint, resume, display.warning)
        stream = PromptStream(
            prompts.prompts,
            epochs=config.run.passes,
            seed=config.run.seed,
            position=point.state.position if point else 0,
        )
        model = load_model(location, tokenizer, config.model, device)
        check_can_be_saved(model)
        engine = TorchEngine(model, max_num_seqs=config.rollout.max_num_seqs, kv_cache_gb=config.rollout.kv_cache_gb)
        for notice in engine.check(every_prompt, config.rollout.max_new_tokens):
            display.notice(notice)
        _check_overlong(algorithm, prompts, engine.limit(config.rollout.max_new_tokens))
        trainer = _trainer(model, config, algorithm, point)
        history = remaining_history(resume, point, display.warning) if resume else []
        folder = run_folder(stack, resume, save_path, algorithm.name, config.to_toml(), started)
        yield Parts(
            config=config,
            algorithm=algorithm,
            folder=folder,
            model=model,
            engine=engine,
            trainer=trainer,
            rewards=rewards,
            stream=stream,
            held_out=held_out,
            clock=Clock(),
            metrics=MetricsLog(folder.metrics),
            rollouts=RolloutLog(folder.rollouts),
            checkpoints=CheckpointStore(folder.checkpoints),
            fingerprint=fingerprint,
            history=history,
            resumed=point,
        )


def starting_point(
    stack: ExitStack, resume: Resume | None, save_path: Path | None, settings: dict[str, object], display: Display
) -> ResumePoint | None:
    """The checkpoint to go on from, with the run's lock held by `stack`; None for a new run, whose folder is checked,
    and for one that has no checkpoint yet."""
    if resume is None:
        check_save_path(save_path)
        return None
    stack.enter_context(only_process(resume.folder.path))
    return find_resume_point(resume, settings, display.notice, display.warning)


def start_time(resume: Resume | None) -> datetime:
    """When the run was started, as templates that print the date are told; of an old run that did not write it down,
    now."""
    return (resume and resume.folder.start_time()) or datetime.now()


def held_out_settings(data: DataSettings, run: RunSettings) -> DataSettings | None:
    """How the held-out data are read; None when there are none."""
    path = run.eval_dataset_path
    return replace(data, dataset_path=path, dataset_loader_fn=None, dedup_prompts=False) if path else None


def _fingerprint(
    config: RunConfig, settings: dict[str, object], prompts: PromptSet, held_out: PromptSet | None
) -> Fingerprint:
    own_reward = config.reward.reward_fn_path
    file, function = split_path(own_reward) if own_reward else ("", None)
    return Fingerprint(
        settings=settings,
        data=prompts_digest(prompts.prompts),
        reward=reward_digest(Path(file), function) if own_reward else None,
        held_out=prompts_digest(held_out.prompts, config.run.eval_n) if held_out else None,
    )


def _check_overlong(algorithm: Algorithm, prompts: PromptSet, limit: AnswerLimit) -> None:
    """Raises ConfigError for a prompt whose answers are all punished for their length, by a limit that the model's
    context sets."""
    for prompt in prompts.prompts:
        if limit.of(prompt) <= algorithm.overlong_buffer_len:
            raise ConfigError(
                f"prompt {prompt.index} leaves {limit.of(prompt)} tokens for its answer in the model's context of "
                f"{limit.context_length}, but dapo_overlong_buffer_len is {algorithm.overlong_buffer_len}",
                fix="lower dapo_overlong_buffer_len or max_prompt_tokens",
            )


def _trainer(model: LanguageModel, config: RunConfig, algorithm: Algorithm, point: ResumePoint | None) -> Trainer:
    trainer = Trainer(
        model,
        config.training,
        algorithm,
        temperature=config.rollout.temperature,
        max_new_tokens=config.rollout.max_new_tokens,
    )
    if point is not None:
        trainer.load(point.checkpoint.path)
        trainer.skipped_in_a_row = point.state.skipped_in_a_row
    return trainer


def remaining_history(resume: Resume, point: ResumePoint | None, warn: Callable[[str], None]) -> list[dict[str, Any]]:
    """Puts the run's files back to the checkpoint; returns the metrics that are left. Raises DataError when these are
    damaged. warn: told of what cannot be deleted."""
    for left in roll_back(resume.folder, point.state.updates if point else -1):
        warn(left)
    return read_metrics(resume.folder.metrics) if point else []


def run_folder(
    stack: ExitStack, resume: Resume | None, save_path: Path | None, algo: str, config_toml: str, started: datetime
) -> RunFolder:
    """A new folder, whose lock `stack` holds from now on, or the resumed one with the settings of now."""
    if resume is not None:
        resume.folder.rewrite_config(config_toml)
        return resume.folder
    folder = RunFolder.create(save_path, algo=algo, config_toml=config_toml, started=started)
    stack.enter_context(only_process(folder.path))
    return folder


def device_of(train_devices: str, display: Display) -> torch.device:
    """The device that `train_devices` names; a GPU number on a machine without one means the CPU, said once."""
    if train_devices == "cpu" or (train_devices == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        display.notice(f"train_devices is {train_devices} but there is no GPU here: training on the CPU")
        return torch.device("cpu")
    number = 0 if train_devices == "auto" else int(train_devices)
    if number >= torch.cuda.device_count():
        raise ConfigError(f"train_devices is {number} but there are {torch.cuda.device_count()} GPUs", fix="use 0")
    return torch.device("cuda", number)
