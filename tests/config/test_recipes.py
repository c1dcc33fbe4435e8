"""Recipes: TOML in tables or flat, flags over them, and what is wrong said in two lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dapo.config import RunConfig, load_config
from dapo.config import load as load_any
from dapo.coordination.sft_settings import SftConfig
from dapo.errors import ConfigError

TABLES = """
[model]
ckpt = "tiny"
[data]
dataset_path = "d.jsonl"
[reward]
reward = "exact_number"
[rollout]
n_samples = 4
temperature = 0.5
stop_strings = ["\\n", "</answer>"]
[training]
lr = 1e-5
"""
FLAT = "\n".join(line for line in TABLES.splitlines() if not line.startswith("["))


def refusal(recipe: Path, **flags: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(recipe, flags)
    return caught.value


def test_tables_and_flat_keys_say_the_same(recipe_of: Callable[[str], Path]) -> None:
    in_tables = load_config(recipe_of(TABLES), {})
    assert load_config(recipe_of(FLAT), {}) == in_tables
    assert in_tables.model.ckpt == "tiny"
    assert in_tables.data.dataset_path == "d.jsonl"
    assert in_tables.reward.reward == "exact_number"
    assert in_tables.rollout.n_samples == 4
    assert in_tables.rollout.temperature == 0.5
    assert in_tables.rollout.stop_strings == ("\n", "</answer>")
    assert in_tables.training.lr == 1e-5


def test_flags_win_over_the_recipe(recipe_of: Callable[[str], Path]) -> None:
    config = load_config(recipe_of(TABLES), {"n_samples": "6"})
    assert config.rollout.n_samples == 6
    assert config.rollout.temperature == 0.5


def test_a_key_under_the_wrong_table_is_told_where_it_belongs(recipe_of: Callable[[str], Path]) -> None:
    error = refusal(recipe_of("[training]\nn_samples = 4\n"))
    assert error.problem.startswith("n_samples stands under [training] in ")
    assert error.fix == "put it under [rollout]"


def test_an_unknown_table_lists_the_tables(recipe_of: Callable[[str], Path]) -> None:
    error = refusal(recipe_of("[sampler]\nn_samples = 4\n"))
    assert error.problem.startswith("unknown table [sampler]")
    assert error.fix == "use one of algorithm, model, data, reward, rollout, collection, training, run, alarms"


@pytest.mark.parametrize("text", ["n_sample = 4\n", "[rollout]\nn_sample = 4\n", "[rollout.n_sample]\nx = 4\n"])
def test_an_unknown_key_names_the_nearest(recipe_of: Callable[[str], Path], text: str) -> None:
    error = refusal(recipe_of(text))
    assert error.problem == "unknown setting n_sample"
    assert error.fix == "did you mean n_samples?"


def test_an_unknown_key_without_a_near_one_points_to_the_help(recipe_of: Callable[[str], Path]) -> None:
    assert refusal(recipe_of("zzzz = 1\n")).fix == "`dapo train --help` lists the settings"


def test_an_unknown_flag_value_names_the_nearest_too(recipe_of: Callable[[str], Path]) -> None:
    assert refusal(recipe_of(TABLES), batchsize="4").fix == "did you mean batch_size?"


def test_a_key_that_stands_twice_is_refused_not_overruled(recipe_of: Callable[[str], Path]) -> None:
    error = refusal(recipe_of("n_samples = 4\n[rollout]\nn_samples = 8\n"))
    assert error.problem.startswith("n_samples stands twice in ")
    assert error.fix == "keep the one under [rollout]"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"n_samples = \n", id="not TOML"),
        pytest.param(b"n_samples = 4\nn_samples = 5\n", id="a key twice"),
        pytest.param(b"ckpt = '\xff\xfe'\n", id="not UTF-8"),
        pytest.param(b"\x00\x01\x02", id="NUL bytes"),
        pytest.param(b"a = " + b"[" * 50_000, id="nested too deeply"),
        pytest.param(b"PK\x03\x04\x80", id="a zip archive"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_a_config_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    error = refusal(path)
    assert error.problem.startswith(f"recipe {path} cannot be read: ")
    assert error.fix == "write it as TOML"


def test_a_missing_recipe_and_a_folder_are_config_errors(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.toml").problem == f"recipe {tmp_path / 'none.toml'} does not exist"
    assert "cannot be read" in refusal(tmp_path).problem
    assert "cannot be read" in refusal(Path("a\0b.toml")).problem


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="defaults, whose penalty factor cannot act"),
        pytest.param({"algo": "grpo"}, id="no dynamic sampling"),
        pytest.param({"algo": "dr_grpo", "dynamic_sampling": True, "max_staleness": 2}, id="advantages not divided"),
        pytest.param({"algo": "gspo", "ratio": "rollout", "clip_ratio_c": 3.5}, id="a real ratio"),
        pytest.param({"dapo_overlong_buffer_len": 8, "dapo_overlong_penalty_factor": 0.5}, id="overlong penalty"),
        pytest.param({"stop_strings": ("\n", '"quoted" \\ é'), "seed": 7, "lr": 3e-7}, id="texts and small numbers"),
        pytest.param({"lr_schedule": "cosine", "max_steps": 10, "min_lr": 1e-7}, id="cosine"),
        pytest.param({"grad_clip_norm": float("inf")}, id="no gradient clipping"),
        pytest.param({"eval_dataset_path": "task:arithmetic", "eval_n": 2, "eval_interval": 5}, id="held-out data"),
    ],
)
def test_resolved_settings_load_again_as_the_same(
    load: Callable[..., Any], recipe_of: Callable[[str], Path], settings: dict[str, Any]
) -> None:
    config = load(**settings)
    assert load_config(recipe_of(config.to_toml()), {}) == config


def test_resolved_settings_hold_defaults_but_not_what_is_unset_or_cannot_act(load: Callable[..., Any]) -> None:
    toml = load(algo="grpo").to_toml()
    assert "[rollout]\nn_samples = 8\n" in toml
    for name in ("max_steps", "dapo_gen_batch_size", "dapo_max_num_gen_batches", "dapo_overlong_penalty_factor"):
        assert f"\n{name} = " not in toml


RECIPES = sorted(Path(__file__).parents[2].glob("recipes/**/*.toml"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_recipe_of_the_project_loads(recipe: Path) -> None:
    load_any(SftConfig if "[sft]" in recipe.read_text() else RunConfig, recipe, {})
