"""Any recipe and any value of any setting: a configuration that can be written down again, or a clear error."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import date, time
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dapo.cli.main import main
from dapo.config import OWNER, TABLES, load_config
from dapo.errors import ConfigError

SEEDED = settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
NEEDED = {"ckpt": "model", "dataset_path": "data.jsonl", "reward": "math"}
Outcome = Callable[..., bool]

HUGE = 2**63
NUMBERS = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([0, -1, 1, HUGE, HUGE - 1, -HUGE, 10**30, 5e-324, 1e308, math.inf, -math.inf, math.nan]),
)
LEAVES = st.one_of(NUMBERS, st.booleans(), st.text(max_size=20), st.dates(), st.times())
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
TYPED = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    NUMBERS.map(str),
    st.sampled_from(["", " ", "nan", "1e999", "-0", "1_000", "0x10", "９", "²", "true", "None", "9" * 5000, "a\nb"]),
)


@SEEDED
@given(name=st.sampled_from(sorted(OWNER)), value=VALUES | TYPED)
def test_any_value_of_any_setting_is_taken_or_refused(answered_or_refused: Outcome, name: str, value: Any) -> None:
    answered_or_refused(lambda: load_config(None, {**NEEDED, name: value}))


@SEEDED
@given(changes=st.dictionaries(st.sampled_from(sorted(OWNER)), TYPED | NUMBERS | st.booleans(), max_size=3))
def test_what_is_taken_can_be_written_down_and_loads_again_as_the_same(
    tmp_path: Path, answered_or_refused: Outcome, changes: dict[str, Any]
) -> None:
    """The run folder's config.toml is made of it."""
    made: list[Any] = []
    if answered_or_refused(lambda: made.append(load_config(None, {**NEEDED, **changes}))):
        recipe = tmp_path / "config.toml"
        recipe.write_text(made[0].to_toml(), encoding="utf-8")
        assert load_config(recipe, {}) == made[0]


TOML_VALUES = st.recursive(
    st.one_of(
        st.integers(-HUGE, HUGE - 1),
        st.floats(),
        st.booleans(),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
        st.just(date(2025, 1, 2)),
        st.just(time(3, 4)),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", ""]), inner, max_size=2),
)
TOML_KEYS = st.sampled_from([*OWNER, *TABLES, "", " ", "n_sample", "ключ"])


@SEEDED
@given(content=st.dictionaries(TOML_KEYS, TOML_VALUES | st.dictionaries(TOML_KEYS, TOML_VALUES, max_size=3)))
def test_any_toml_is_taken_or_refused(tmp_path: Path, answered_or_refused: Outcome, content: dict[str, Any]) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(tomli_w.dumps(content), encoding="utf-8")
    answered_or_refused(lambda: load_config(recipe, {}))


@SEEDED
@given(noise=st.binary(max_size=20), at=st.integers(0, 600), cut=st.integers(0, 30))
def test_a_good_recipe_with_a_damaged_place_is_taken_or_refused(
    tmp_path: Path, answered_or_refused: Outcome, noise: bytes, at: int, cut: int
) -> None:
    good = (Path(__file__).parents[2] / "recipes" / "quickstart.toml").read_bytes()
    recipe = tmp_path / "recipe.toml"
    recipe.write_bytes(good[:at] + noise + good[at + cut :])
    answered_or_refused(lambda: load_config(recipe, {}))


@pytest.mark.parametrize("name", ["n_samples", "lr", "ckpt", "stop_strings", "dedup_prompts"])
def test_a_number_too_long_to_be_shown_is_refused_all_the_same(tmp_path: Path, name: str) -> None:
    """5000 hexadecimal digits are 6021 decimal ones; Python shows at most 4300, but reads these."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f"{name} = 0x{'f' * 5000}\n")
    with pytest.raises(ConfigError, match=f"{name} is a number of thousands of digits") as caught:
        load_config(recipe, NEEDED if name != "ckpt" else {})
    assert caught.value.fix


BORDERS = {
    "seed": HUGE - 1,
    "epochs": 1,
    "max_new_tokens": HUGE - 1,
    "max_num_seqs": HUGE - 1,
    "kv_cache_gb": 1e308,
    "batch_size": HUGE - 1,
    "dapo_gen_batch_size": HUGE - 1,
    "dapo_max_num_gen_batches": HUGE - 1,
    "max_staleness": HUGE - 1,
    "mini_bs": HUGE - 1,
    "gradient_accumulation_steps": HUGE - 1,
    "max_tokens_per_pass": HUGE - 1,
    "max_skipped_updates": HUGE - 1,
    "grad_clip_norm": math.inf,
    "lr_warmup_steps": HUGE - 1,
    "max_steps": HUGE - 1,
    "max_prompt_tokens": HUGE - 1,
    "reward_timeout_s": 1e308,
    "reward_memory_mb": HUGE - 1,
    "save_interval": HUGE - 1,
    "keep_checkpoints": HUGE - 1,
    "alarm_window": HUGE - 1,
    "alarm_interval": HUGE - 1,
    "train_devices": "9999",
    "top_k": HUGE - 1,
    "adv_eps": 1e308,
}
"""Settings at the largest value that they take. With one epoch they mean: all the data, in one update."""


def command(tiny: Path, **changes: Any) -> list[str]:
    base = {
        "ckpt": tiny,
        "dataset_path": "data.jsonl",
        "reward_fn_path": "reward.py",
        "save_path": "out",
        "reward_workers": 1,
        "n_samples": 2,
        "max_new_tokens": 3,
        "max_steps": 1,
    }
    flags = [w for key, value in {**base, **changes}.items() for w in ("--" + key.replace("_", "-"), str(value))]
    return ["train", "--allow-biased-ratio", *flags]


def test_the_largest_values_that_are_taken_make_a_run(
    workplace: Path, tiny_folder: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(command(tiny_folder(), **BORDERS)) == 0, capfd.readouterr().err
    assert "Traceback" not in capfd.readouterr().err
    (line,) = [json.loads(line) for line in Path("out/metrics.jsonl").read_text().splitlines()]
    assert line["dapo_generated_groups"] == 2


def test_a_learning_rate_that_destroys_the_weights_ends_in_an_error(
    workplace: Path, tiny_folder: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    """The run's own failure, not the input's: exit code 1. The first step makes the weights infinite."""
    more = {"lr": 1e308, "mini_bs": 1, "batch_size": 1, "max_steps": 2, "epochs": 2}
    assert main(command(tiny_folder(), **more)) == 1
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert re.search(r"error: prompt \d: the probabilities of the next token are not finite.*\n  fix: .*lower lr", err)
