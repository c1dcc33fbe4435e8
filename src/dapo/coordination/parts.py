"""Everything a run is made of, put together in the order in which bad input shows: cheap checks first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from dapo.algorithms.settings import Algorithm
from dapo.config import RunConfig
from dapo.coordination.generation import Clock
from dapo.data.prompts import PromptSet, encode_prompts
from dapo.data.sources import load_rows
from dapo.data.stream import PromptStream
from dapo.errors import ConfigError
from dapo.models.language_model import LanguageModel
from dapo.models.loading import load_model, load_tokenizer, locate
from dapo.rewards.check import check_answers
from dapo.rewards.pool import RewardPool
from dapo.rollout.torch_engine import TorchEngine
from dapo.tracking.display import Display
from dapo.tracking.metrics_log import MetricsLog
from dapo.tracking.rollout_log import RolloutLog
from dapo.tracking.run_folder import RunFolder, check_save_path
from dapo.training.update import Trainer


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


@contextmanager
def assemble(config: RunConfig, display: Display) -> Iterator[Parts]:
    """Build all parts and take them down again. The run folder is made last, so that no failure leaves one."""
    algorithm = Algorithm.of(config.algorithm)
    save_path = Path(config.run.save_path) if config.run.save_path else None
    check_save_path(save_path)
    device = _device(config.run.train_devices, display)
    rows = load_rows(config.data, model_hub=config.model.model_hub)
    held_out_data = (
        replace(config.data, dataset_path=config.run.eval_dataset_path, dataset_loader_fn=None, dedup_prompts=False)
        if config.run.eval_dataset_path
        else None
    )
    held_out_rows = load_rows(held_out_data, model_hub=config.model.model_hub) if held_out_data else []
    with ExitStack() as stack:
        rewards = stack.enter_context(RewardPool(config.reward))
        rewards.start()
        location = locate(config.model, notify=display.notice)
        tokenizer = load_tokenizer(location, config.model)
        prompts = encode_prompts(rows, config.data, tokenizer)
        held_out = encode_prompts(held_out_rows, held_out_data, tokenizer) if held_out_data else None
        check_answers(config.reward, [*prompts.prompts, *(held_out.prompts if held_out else ())])
        for notice in prompts.notices():
            display.notice(notice)
        model = load_model(location, tokenizer, config.model, device)
        engine = TorchEngine(model, max_num_seqs=config.rollout.max_num_seqs, kv_cache_gb=config.rollout.kv_cache_gb)
        trainer = Trainer(
            model,
            config.training,
            algorithm,
            temperature=config.rollout.temperature,
            max_new_tokens=config.rollout.max_new_tokens,
        )
        stream = PromptStream(prompts.prompts, epochs=config.run.epochs, seed=config.run.seed)
        folder = RunFolder.create(save_path, algo=algorithm.name, config_toml=config.to_toml())
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
        )


def _device(train_devices: str, display: Display) -> torch.device:
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
