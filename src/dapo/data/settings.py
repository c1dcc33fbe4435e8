"""The settings of the data room."""

from __future__ import annotations

from dataclasses import dataclass

from dapo.errors import ConfigError


@dataclass(frozen=True)
class DataSettings:
    """Where the prompts come from and which of them are kept."""

    dataset_path: str | None = None
    """Data to learn from: a json, jsonl, csv or parquet file, a folder, a hub id or a task.

    A folder is one written by `datasets.save_to_disk`; a hub id is `repo[:config[:split]]`, split `train` by
    default; a task is `task:arithmetic?digits=1` or `task:reasoning_gym/<name>?rows=500`.
    """
    dataset_loader_fn: str | None = None
    """Own Python function that returns the rows: `file.py[:function]`, by default `load_rows`.

    It is called with `dataset_path` if it has a parameter, else with nothing, and gives an iterable of mappings.
    """
    max_prompt_tokens: int = 1024
    """Prompts of more tokens than this are dropped and counted; at least 1."""
    dedup_prompts: bool = False
    """Keep one of the rows that share prompt and answer, the first."""

    def __post_init__(self) -> None:
        for name in ("dataset_path", "dataset_loader_fn"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value.strip()):
                raise ConfigError(f"{name} is {value!r}, not a text", fix=f"give {name} a value or leave it out")
        if self.dataset_path is None and self.dataset_loader_fn is None:
            raise ConfigError(
                "no data: neither dataset_path nor dataset_loader_fn is set",
                fix="name a file, a hub id or a task, such as --dataset-path task:arithmetic",
            )
        limit = self.max_prompt_tokens
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ConfigError(
                f"max_prompt_tokens is {limit!r}", fix="give the most tokens that a prompt may have, at least 1"
            )
        if not isinstance(self.dedup_prompts, bool):
            raise ConfigError(f"dedup_prompts is {self.dedup_prompts!r}", fix="write true or false")
