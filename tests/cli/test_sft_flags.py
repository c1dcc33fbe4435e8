"""The settings of `dapo sft`: the shared ones under their names, a few of its own, and none that cannot act."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dapo.cli.field_docs import field_docs
from dapo.cli.main import main
from dapo.config import OWNER, load
from dapo.coordination.sft_settings import NEVER_ACTS, SftConfig
from dapo.errors import ConfigError

NEEDED = {"ckpt": "m", "dataset_path": "d.jsonl"}


def config(recipe: Path | None = None, **settings: Any) -> SftConfig:
    return load(SftConfig, recipe, NEEDED | settings)


@pytest.fixture
def recipe_of(tmp_path: Path) -> Callable[[str], Path]:
    """A recipe file with this text."""

    def write(text: str) -> Path:
        path = tmp_path / "recipe.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    assert main(["sft", *arguments]) == 2
    error, fix = capsys.readouterr().err.splitlines()
    return error, fix


def test_help_has_a_flag_for_every_setting_that_acts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sft", "--help"])
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for name in SftConfig.owners():
        assert (f"--{name.replace('_', '-')} " in text or f"--no-{name.replace('_', '-')}" in text) == (
            name not in NEVER_ACTS
        )
    assert "Learning rate. (default 2e-05)" in text
    assert "Updates between two checkpoints; 0: only when the run ends or is stopped. (default 100)" in text
    assert "a string, learned as the answer to the row's prompt. (default solution)" in text


def test_names_are_unique_and_the_shared_ones_are_those_of_training() -> None:
    tables = SftConfig.tables()
    assert sum(len(fields(kind)) for kind in tables.values()) == len(SftConfig.owners())
    own = {field.name for field in fields(tables["sft"])}
    assert own == {"batch_size", "solution_key", "max_tokens", "shuffle"}
    assert {name: table for name, table in SftConfig.owners().items() if name not in own}.items() <= OWNER.items()
    assert all(field_docs(tables["sft"]).get(name) for name in own)


def test_the_defaults_are_those_of_supervised_training() -> None:
    assert (config().training.lr, config().run.save_interval) == (2e-5, 100)
    assert (config(lr=1e-6).training.lr, config(save_interval=10).run.save_interval) == (1e-6, 10)


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [("batch_size", "5", 5), ("solution_key", "work", "work"), ("max_tokens", "64", 64), ("shuffle", "false", False)],
)
def test_own_settings_arrive_as_typed(name: str, typed: str, value: Any) -> None:
    assert getattr(config(**{name: typed}).sft, name) == value
    assert getattr(config().sft, name) != value


@pytest.mark.parametrize("name", sorted(NEVER_ACTS))
def test_a_setting_that_means_nothing_here_is_refused_with_the_reason(name: str) -> None:
    value = {"keep_best": True, "agent_fn": None}.get(name, 1)
    with pytest.raises(ConfigError) as caught:
        config(eval_dataset_path="h.jsonl", **{name: value})
    assert caught.value.problem == f"{name} is given but {NEVER_ACTS[name]}"
    assert f"\n{name} = " not in config().to_toml()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"solution_key": ""}, "solution_key is empty"),
        ({"max_tokens": 1}, "max_tokens is 1"),
        ({"eval_interval": 5}, "eval_interval is 5 but eval_dataset_path is not set"),
    ],
)
def test_bad_values_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        config(**settings)


def test_a_recipe_has_the_same_tables_and_flags_win(recipe_of: Callable[[str], Path]) -> None:
    recipe = recipe_of("[sft]\nbatch_size = 8\nshuffle = false\n[training]\nlr = 1e-3\n[run]\nepochs = 2\n")
    made = config(recipe, batch_size="16")
    assert (made.sft.batch_size, made.sft.shuffle, made.training.lr, made.run.epochs) == (16, False, 1e-3, 2)
    assert load(SftConfig, recipe_of(made.to_toml()), {}) == made


def test_unknown_names_get_a_guess_among_the_settings_of_this_command(
    recipe_of: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        config(recipe_of("[sft]\nsolution_kye = 'x'\n"))
    assert (caught.value.problem, caught.value.fix) == ("unknown setting solution_kye", "did you mean solution_key?")
    with pytest.raises(ConfigError) as caught:
        config(recipe_of("zzzz = 1\n"))
    assert caught.value.fix == "`dapo sft --help` lists the settings"
    with pytest.raises(ConfigError) as caught:
        config(recipe_of("[rollout]\nn_samples = 4\n"))
    assert caught.value.fix == "use one of model, data, sft, training, run"
    error, fix = refused(["--solution-kye", "x"], capsys)
    assert (error, fix) == ("error: unknown flag --solution-kye", "  fix: did you mean --solution-key?")


def test_flags_reach_the_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The file is looked for under the name that was typed, relative to where the person is."""
    error, _ = refused(["--ckpt", "m", "--dataset-path", str(tmp_path / "none.jsonl")], capsys)
    assert f"{tmp_path / 'none.jsonl'}" in error
