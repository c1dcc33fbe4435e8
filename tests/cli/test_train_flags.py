"""Flags are the settings' names; a sister system's command line works with the program's name changed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from dapo.cli import train
from dapo.cli.main import Parser
from dapo.config import OWNER, TABLES, RunConfig, load_config

SISTER = shlex.split("""
--algo dapo --ckpt some-model --model-hub hf --dataset-path validation.jsonl --reward-fn-path reward.py --epochs 1
--max-steps 1 --world-size 1 --tp-size 1 --train-devices 0 --batch-size 1 --dapo-gen-batch-size 1
--dapo-max-num-gen-batches 2 --n-samples 2 --mini-bs 1 --gradient-accumulation-steps 1 --max-prompt-tokens 64
--max-new-tokens 4 --temperature 1.0 --attn-backend native --eager-decode --no-activation-checkpointing
""")
LEAST = ["--ckpt", "m", "--dataset-path", "d.jsonl", "--reward", "math"]


def settings_of(arguments: list[str]) -> dict[str, Any]:
    """The settings that a command line gives, as the command hands them on."""
    parser = Parser(prog="dapo train", allow_abbrev=False)
    train.add_arguments(parser)
    given = vars(parser.parse_args(arguments))
    return {name: value for name, value in given.items() if name in OWNER}


def config_of(arguments: list[str], recipe: Path | None = None) -> RunConfig:
    return load_config(recipe, settings_of(arguments))


def test_the_sister_systems_command_line_means_what_it_says() -> None:
    config = config_of(SISTER)
    assert config.algorithm.algo == "dapo"
    assert (config.model.ckpt, config.model.model_hub, config.model.attn_backend) == ("some-model", "hf", "native")
    assert config.model.activation_checkpointing is False
    assert (config.data.dataset_path, config.data.max_prompt_tokens) == ("validation.jsonl", 64)
    assert config.reward.reward_fn_path == "reward.py"
    assert (config.rollout.n_samples, config.rollout.max_new_tokens, config.rollout.temperature) == (2, 4, 1.0)
    assert config.rollout.eager_decode is True
    assert (config.collection.batch_size, config.collection.dapo_gen_batch_size) == (1, 1)
    assert config.collection.dapo_max_num_gen_batches == 2
    assert (config.training.mini_bs, config.training.gradient_accumulation_steps) == (1, 1)
    assert (config.run.epochs, config.run.max_steps, config.run.train_devices) == (1, 1, "0")
    assert (config.run.world_size, config.run.tp_size) == (1, 1)


def test_every_flag_of_the_sister_system_is_a_setting() -> None:
    flags = [word for word in SISTER if re.match("--", word)]
    assert len(flags) == 22
    assert len(settings_of(SISTER)) == 22


def test_only_what_is_typed_is_given() -> None:
    """Settings left out must not arrive as their defaults: they would win over the recipe."""
    assert settings_of(["--lr", "1e-5"]) == {"lr": "1e-5"}


@pytest.mark.parametrize("name", sorted(OWNER))
def test_each_setting_has_the_flag_of_its_name(name: str) -> None:
    flag = "--" + name.replace("_", "-")
    hint = get_type_hints(TABLES[OWNER[name]])[name]
    if bool in (hint, *get_args(hint)):
        assert settings_of([flag]) == {name: True}
        assert settings_of([flag.replace("--", "--no-", 1)]) == {name: False}
    elif name == "stop_strings":
        assert settings_of([flag, "a", flag, "b"]) == {name: ["a", "b"]}
    else:
        assert settings_of([flag, "7"]) == {name: "7"}


def test_stop_strings_are_given_one_flag_each() -> None:
    assert config_of([*LEAST, "--stop-strings", "\n", "--stop-strings", "END"]).rollout.stop_strings == ("\n", "END")


def test_a_switch_can_be_turned_off_over_the_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("mask_overlong_truncated = true\n")
    assert config_of(LEAST, recipe).algorithm.mask_overlong_truncated is True
    assert config_of([*LEAST, "--no-mask-overlong-truncated"], recipe).algorithm.mask_overlong_truncated is False


def test_negative_and_scientific_numbers_are_values_not_flags() -> None:
    assert settings_of(["--seed", "-1"]) == {"seed": "-1"}
    assert config_of([*LEAST, "--lr", "3e-7"]).training.lr == 3e-7
