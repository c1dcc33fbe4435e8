"""Each setting is checked where it is made. That it acts is shown beside the code that acts on it."""

from __future__ import annotations

import pytest

from dapo.data import DataSettings
from dapo.errors import ConfigError


def test_defaults_are_those_of_the_manual() -> None:
    settings = DataSettings(dataset_path="data.jsonl")
    assert (settings.dataset_loader_fn, settings.max_prompt_tokens, settings.dedup_prompts) == (None, 1024, False)


def test_data_must_come_from_somewhere() -> None:
    with pytest.raises(ConfigError, match=r"neither dataset_path nor dataset_loader_fn[^\0]*fix: name a file"):
        DataSettings()


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "64"])
def test_a_token_limit_below_one_or_of_another_type_is_refused(limit: object) -> None:
    with pytest.raises(ConfigError, match=f"max_prompt_tokens is {limit!r}"):
        DataSettings(dataset_path="x", max_prompt_tokens=limit)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["", "  ", 3])
@pytest.mark.parametrize("name", ["dataset_path", "dataset_loader_fn"])
def test_an_empty_source_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        DataSettings(**{name: value})  # type: ignore[arg-type]


def test_a_word_is_no_switch() -> None:
    with pytest.raises(ConfigError, match="dedup_prompts is 'no'"):
        DataSettings(dataset_path="x", dedup_prompts="no")  # type: ignore[arg-type]
