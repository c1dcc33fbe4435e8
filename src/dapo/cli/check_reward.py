"""Try a reward on a few rows and given answers, and print what it returned."""

from __future__ import annotations

import argparse
from typing import Any

from dapo.cli.setting_flags import add_setting_flags
from dapo.data.settings import DataSettings
from dapo.rewards.settings import RewardSettings

ROW_SETTINGS = ("dataset_path", "dataset_loader_fn")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "dapo check-reward (--reward NAME | --reward-fn-path FILE) --dataset-path DATA [--completion TEXT ...]"
    )
    parser.add_argument(
        "--completion",
        action="append",
        metavar="TEXT",
        help="an answer to score for every row; may be repeated (the row's own answer, boxed, and an empty one)",
    )
    parser.add_argument("--rows", type=int, default=3, metavar="N", help="rows to try (default 3)")
    add_setting_flags(parser, "reward", RewardSettings)
    add_setting_flags(parser, "data", DataSettings, without=("max_prompt_tokens", "dedup_prompts"))


def run(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    from dapo.config import make_settings
    from dapo.data.sources import load_rows
    from dapo.errors import ConfigError
    from dapo.records import Prompt
    from dapo.rewards.check import check_answers, check_reward

    if arguments.rows < 1:
        raise ConfigError(f"--rows is {arguments.rows}", fix="use at least 1")
    given = vars(arguments)
    settings = make_settings(RewardSettings, given)
    rows = load_rows(make_settings(DataSettings, given))[: arguments.rows]
    prompts = [
        Prompt(
            row.index, _text(row.prompt), (), () if isinstance(row.prompt, str) else row.prompt, row.answer, row.columns
        )
        for row in rows
    ]
    check_answers(settings, prompts)
    tried = [(prompt, arguments.completion or _likely_answers(prompt.answer)) for prompt in prompts]
    result = check_reward(settings, tried)
    table = Table("row", "answer of the row", "completion", "reward", "further metrics")
    for (prompt, completions), scores in zip(tried, result.scores, strict=True):
        for completion, score in zip(completions, scores, strict=True):
            metrics = ", ".join(f"{key} {value:g}" for key, value in score.metrics.items())
            table.add_row(str(prompt.index), str(prompt.answer), completion or "(empty)", f"{score.value:g}", metrics)
    console = Console(highlight=False, markup=False)
    console.print(table)
    for reason, count in result.failures.items():
        if count:
            console.print(f"{count} answers were not judged: {reason}")
    return 0


def _text(prompt: str | tuple[Any, ...]) -> str:
    return prompt if isinstance(prompt, str) else "\n".join(str(message["content"]) for message in prompt)


def _likely_answers(answer: Any) -> list[str]:
    first = answer[0] if isinstance(answer, list) and answer else answer
    return [f"\\boxed{{{first}}}", ""]
