"""Measure a model: avg@n, pass@k and maj@k on problems whose answers can be checked."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from dapo.cli.setting_flags import add_all_settings
from dapo.config import make_settings
from dapo.data.settings import DataSettings
from dapo.errors import ConfigError
from dapo.evaluation.settings import EvalConfig, EvalSettings
from dapo.models.settings import ModelSettings
from dapo.rewards.settings import RewardSettings

MOST_USED = ("ckpt", "dataset_path", "reward", "reward_fn_path", "n", "max_new_tokens", "temperature", "save_path")
EXAMPLES = """three commands to try:
  dapo eval --ckpt smollm2-135m --dataset-path "task:arithmetic?rows=50" --reward exact_number --n 8 --max-new-tokens 24
  dapo eval --ckpt runs/first --dataset-path test.jsonl --reward math
  dapo eval --ckpt runs/first@step_40 --dataset-path test.jsonl --reward math --n 1 --greedy
"""
_ONLY_WHEN_TRAINING = ("attn_backend", "activation_checkpointing")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag per setting, grouped by the part that owns it."""
    parser.usage = "dapo eval [--setting value ...]"
    parser.epilog = EXAMPLES
    tables = {"data": DataSettings, "model": ModelSettings, "reward": RewardSettings, "evaluation": EvalSettings}
    add_all_settings(parser, tables, MOST_USED, without=_ONLY_WHEN_TRAINING)


def run(arguments: argparse.Namespace) -> int:
    config = eval_config(vars(arguments))

    from dapo.evaluation.evaluate import evaluate
    from dapo.evaluation.progress import EvalProgress
    from dapo.evaluation.tables import beyond_table, measures_table, problems_table

    with EvalProgress(sys.stdout) as progress:
        try:
            done = evaluate(config, progress)
        except KeyboardInterrupt:
            progress.notice("stopped; the same command goes on where this one ended")
            raise
    report = done.report
    for part in ("", problems_table(report), beyond_table(report), "", measures_table(report), ""):
        if part is not None:
            progress.console.print(part)
    if report.unjudged:
        progress.notice(f"{report.unjudged} answers could not be judged and count as wrong")
    progress.notice(f"results: {done.results}")
    return 0


def eval_config(flags: Mapping[str, Any]) -> EvalConfig:
    """The settings that the flags stand for; raises ConfigError for a bad one and for one that cannot act."""
    if flags.get("greedy"):
        for name in ("temperature", "top_p", "top_k"):
            if name in flags:
                raise ConfigError(
                    f"{name} is given but greedy is on, which always takes the likeliest token", fix=f"leave {name} out"
                )
    return EvalConfig(
        evaluation=make_settings(EvalSettings, flags),
        model=make_settings(ModelSettings, flags),
        data=make_settings(DataSettings, flags),
        reward=make_settings(RewardSettings, flags),
    )
