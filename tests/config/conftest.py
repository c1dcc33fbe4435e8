"""The least that a run needs, and recipes as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dapo.config import RunConfig, load_config

NEEDED = {"ckpt": "model", "dataset_path": "data.jsonl", "reward": "math"}


@pytest.fixture
def load() -> Callable[..., RunConfig]:
    """The configuration of these settings over the least that a run needs; None leaves one out."""

    def make(recipe: Path | None = None, **settings: Any) -> RunConfig:
        flags = {**NEEDED, **settings}
        return load_config(recipe, {name: value for name, value in flags.items() if value is not None})

    return make


@pytest.fixture
def recipe_of(tmp_path: Path) -> Callable[[str], Path]:
    """A recipe file with this text."""

    def write(text: str) -> Path:
        path = tmp_path / "recipe.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write
