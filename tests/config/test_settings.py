"""Every setting reaches its owner; what cannot act or makes no sense is refused by name, value and fix."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from dapo.cli.field_docs import field_docs
from dapo.config import OWNER, TABLES
from dapo.errors import ConfigError
from dapo.kinds import kind_of

GRPO = {"algo": "grpo", "ratio": "rollout"}
HELD_OUT = {"eval_dataset_path": "held_out.jsonl"}

# setting, as typed, what it becomes (never the default), what else it needs
TYPED: list[tuple[str, str, Any, dict[str, Any]]] = [
    ("algo", "gspo", "gspo", {}),
    ("ratio", "rollout", "rollout", {}),
    ("dapo_clip_eps_low", "0.1", 0.1, {}),
    ("dapo_clip_eps_high", "0.4", 0.4, {}),
    ("clip_eps_low", "0.1", 0.1, GRPO),
    ("clip_eps_high", "0.4", 0.4, GRPO),
    ("clip_ratio_c", "10", 10.0, {}),
    ("loss_aggregation", "seq-mean-token-sum", "seq-mean-token-sum", {}),
    ("scale_advantages", "batch", "batch", {}),
    ("adv_eps", "1e-6", 1e-6, {}),
    ("adv_correction", "1", 1, {}),
    ("dynamic_sampling", "false", False, {}),
    ("mask_overlong_truncated", "true", True, {}),
    ("dapo_overlong_buffer_len", "4", 4, {}),
    ("dapo_overlong_penalty_factor", "0.5", 0.5, {"dapo_overlong_buffer_len": 4}),
    ("ckpt", "some/model", "some/model", {}),
    ("model_hub", "modelscope", "modelscope", {}),
    ("dtype", "bfloat16", "bfloat16", {}),
    ("trust_remote_code", "true", True, {}),
    ("activation_checkpointing", "true", True, {}),
    ("dataset_path", "task:arithmetic", "task:arithmetic", {}),
    ("dataset_loader_fn", "rows.py:load", "rows.py:load", {}),
    ("max_prompt_tokens", "64", 64, {}),
    ("dedup_prompts", "true", True, {}),
    ("reward", "exact_number", "exact_number", {}),
    ("reward_fn_path", "reward.py", "reward.py", {"reward": None}),
    ("reward_workers", "3", 3, {}),
    ("reward_timeout_s", "2.5", 2.5, {}),
    ("reward_memory_mb", "512", 512, {}),
    ("n_samples", "2", 2, {}),
    ("max_new_tokens", "4", 4, {}),
    ("temperature", "0.7", 0.7, {}),
    ("top_p", "0.9", 0.9, {"allow_biased_ratio": True}),
    ("top_k", "50", 50, {"allow_biased_ratio": True}),
    ("allow_biased_ratio", "true", True, {}),
    ("max_num_seqs", "16", 16, {}),
    ("kv_cache_gb", "0.5", 0.5, {}),
    ("batch_size", "1", 1, {}),
    ("dapo_gen_batch_size", "3", 3, {}),
    ("dapo_max_num_gen_batches", "2", 2, {}),
    ("filter_groups_metric", "acc", "acc", {}),
    ("max_staleness", "2", 2, {}),
    ("on_sampling_limit", "train_partial", "train_partial", {}),
    ("lr", "1e-5", 1e-5, {}),
    ("lr_warmup_steps", "5", 5, {}),
    ("lr_schedule", "cosine", "cosine", {"max_steps": 10}),
    ("min_lr", "1e-7", 1e-7, {"lr_schedule": "cosine", "max_steps": 10}),
    ("adam_beta1", "0.8", 0.8, {}),
    ("adam_beta2", "0.95", 0.95, {}),
    ("weight_decay", "0", 0.0, {}),
    ("grad_clip_norm", "0.5", 0.5, {}),
    ("mini_bs", "1", 1, {}),
    ("gradient_accumulation_steps", "2", 2, {}),
    ("max_tokens_per_pass", "1000", 1000, {}),
    ("max_skipped_updates", "1", 1, {}),
    ("save_path", "out", "out", {}),
    ("epochs", "3", 3, {}),
    ("max_steps", "7", 7, {}),
    ("max_rollout_tokens", "5000", 5000, {}),
    ("seed", "5", 5, {}),
    ("eval_dataset_path", "held_out.jsonl", "held_out.jsonl", {}),
    ("eval_interval", "2", 2, HELD_OUT),
    ("eval_n", "3", 3, HELD_OUT),
    ("save_interval", "0", 0, {}),
    ("keep_checkpoints", "1", 1, {}),
    ("keep_best", "true", True, HELD_OUT),
    ("train_devices", "0", "0", {}),
    ("alarm_window", "3", 3, {}),
    ("alarm_interval", "9", 9, {}),
    ("alarm_entropy", "0.5", 0.5, {}),
    ("alarm_clip_share", "0.5", 0.5, {}),
    ("alarm_informative_share", "0.5", 0.5, {}),
    ("alarm_length_growth", "3", 3.0, {}),
    ("alarm_mismatch_growth", "2", 2.0, {}),
]
ONE_VALUE = {"attn_backend", "greedy", "eager_decode", "world_size", "tp_size", "agent_fn"}
"""Settings of other systems' command lines whose every other value is refused (see the refusals below)."""
ELSEWHERE = {"stop_strings"}
"""A list: see test_recipes and the command line's own tests."""


@pytest.mark.parametrize(("name", "typed", "value", "needs"), TYPED, ids=[row[0] for row in TYPED])
def test_each_setting_reaches_its_owner_as_typed(
    load: Callable[..., Any], name: str, typed: str, value: Any, needs: dict[str, Any]
) -> None:
    config = load(**{**needs, name: typed})
    reached = getattr(getattr(config, OWNER[name]), name)
    assert reached == value
    assert type(reached) is type(value)
    default = {field.name: field.default for field in fields(TABLES[OWNER[name]])}[name]
    assert value != default, "a setting that comes out at its default may have been ignored"


def test_every_setting_stands_in_one_of_these_tests() -> None:
    """A new setting needs a row above."""
    assert set(OWNER) == {row[0] for row in TYPED} | ONE_VALUE | ELSEWHERE


def test_names_of_settings_are_unique_over_all_tables() -> None:
    assert sum(len(fields(kind)) for kind in TABLES.values()) == len(OWNER)


def test_every_setting_is_explained() -> None:
    for kind in TABLES.values():
        docs = field_docs(kind)
        for field in fields(kind):
            assert docs.get(field.name), f"{kind.__name__}.{field.name} has no sentence under it"


@pytest.mark.parametrize(
    ("settings", "problem", "fix"),
    [
        ({"n_samples": "many"}, "n_samples is 'many', not a whole number", "write a whole number, such as 8"),
        ({"n_samples": 2.5}, "n_samples is 2.5, not a whole number", "write a whole number, such as 8"),
        ({"n_samples": [2]}, "n_samples is [2], not a whole number", "write a whole number, such as 8"),
        ({"max_steps": "x"}, "max_steps is 'x', not a whole number", "write a whole number, such as 8"),
        ({"temperature": "warm"}, "temperature is 'warm', not a number", "write a number, such as 1.0"),
        ({"lr": "fast"}, "lr is 'fast', not a number", "write a number, such as 1e-06"),
        (
            {"dtype": "bf16"},
            "dtype is 'bf16', which is not one of auto, float32 or bfloat16",
            "write auto, float32 or bfloat16; did you mean bfloat16?",
        ),
        (
            {"ratio": "online"},
            "ratio is 'online', which is not one of rollout or on_policy",
            "write rollout or on_policy",
        ),
        (
            {"lr_schedule": "cosin"},
            "lr_schedule is 'cosin', which is not one of constant or cosine",
            "write constant or cosine; did you mean cosine?",
        ),
        ({"attn_backend": "flash"}, "attn_backend is 'flash', which is not native", "write native"),
        ({"dedup_prompts": "maybe"}, "dedup_prompts is 'maybe', not true or false", "write true or false"),
        ({"dynamic_sampling": "x"}, "dynamic_sampling is 'x', not true or false", "write true or false"),
        ({"stop_strings": "x"}, "stop_strings is 'x', not a list of texts", 'write a list of texts, such as ["END"]'),
        ({"train_devices": 0}, "train_devices is 0, not a text", "write a text, such as auto"),
        ({"epochs": True}, "epochs is True, not a whole number", "write a whole number, such as 8"),
        ({"lr": True}, "lr is True, not a number", "write a number, such as 1e-06"),
        ({"ckpt": {"a": 1}}, "ckpt is {'a': 1}, not a text", "write a text, such as name"),
        (
            {"n_samples": "9" * 5000},
            f"n_samples is '{'9' * 39}... (5002 characters), not a whole number",
            "write a whole number, such as 8",
        ),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_in_a_persons_words(
    load: Callable[..., Any], settings: dict[str, Any], problem: str, fix: str
) -> None:
    """Nothing of the library that converts values reaches the person."""
    with pytest.raises(ConfigError) as caught:
        load(**settings)
    assert (caught.value.problem, caught.value.fix) == (problem, fix)


@pytest.mark.parametrize("name", sorted(OWNER))
def test_every_setting_says_what_kind_of_value_it_takes(name: str) -> None:
    kind = kind_of(TABLES[OWNER[name]], name)
    assert kind.words
    assert kind.example


# The list of bad input that the command line promises to refuse, and every other border of a setting.
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"temperature": "0"}, "temperature is 0.0", "above 0"),
    ({"temperature": "-1"}, "temperature is -1.0", "above 0"),
    ({"temperature": "nan"}, "temperature is nan", "above 0"),
    ({"temperature": "inf"}, "temperature is inf", "above 0"),
    ({"n_samples": 1}, "n_samples is 1", "at least 2"),
    ({"dapo_overlong_buffer_len": -1}, "dapo_overlong_buffer_len is -1", "0 to switch"),
    (
        {"dapo_overlong_buffer_len": 16, "max_new_tokens": 16},
        "dapo_overlong_buffer_len is 16 but max_new_tokens is 16",
        "make the buffer smaller than the response limit, or 0 to switch the penalty off",
    ),
    ({"dapo_clip_eps_high": 0.1}, "dapo_clip_eps_high is 0.1 but dapo_clip_eps_low is 0.2", "at least"),
    ({"top_p": 0.9}, "top_p is 0.9: answers would be drawn from a cut distribution", "allow_biased_ratio"),
    ({"top_k": 50}, "top_k is 50: answers would be drawn from a cut distribution", "allow_biased_ratio"),
    ({"top_p": 0.0, "allow_biased_ratio": True}, "top_p is 0.0", "above 0 and at most 1"),
    ({"top_p": 1.5}, "top_p is 1.5", "above 0 and at most 1"),
    ({"top_k": -1}, "top_k is -1", "0 for all"),
    ({"greedy": True}, "greedy is on", "leave greedy out"),
    ({"world_size": 2}, "world_size is 2, but this version trains in one process", "--world-size 1"),
    ({"tp_size": 2}, "tp_size is 2, but this version trains in one process", "--tp-size 1"),
    ({"agent_fn": "agent.py"}, "agent_fn is 'agent.py': agentic rollouts are refused, DAPO needs groups", "leave"),
    ({"agent_fn": "agent.py", "algo": "grpo"}, "agent_fn is 'agent.py': agentic rollouts are refused, not bu", "leave"),
    ({"train_devices": "mlx"}, "train_devices is mlx, but there is no MLX backend", "cpu"),
    ({"train_devices": "gpu"}, "train_devices is 'gpu'", "auto, cpu"),
    ({"train_devices": "²"}, "train_devices is '²'", "auto, cpu"),
    ({"train_devices": "-1"}, "train_devices is '-1'", "auto, cpu"),
    ({"eager_decode": False}, "eager_decode is off", "--eager-decode"),
    ({"ckpt": None}, "ckpt is not set", "--ckpt smollm2-135m"),
    ({"ckpt": ""}, "ckpt is not set", "--ckpt smollm2-135m"),
    ({"dataset_path": None}, "no data: neither dataset_path nor dataset_loader_fn is set", "task:arithmetic"),
    ({"reward": None}, "no reward is set", "reward_fn_path"),
    ({"reward_fn_path": "r.py"}, "reward is 'math' and reward_fn_path is 'r.py'", "remove one"),
    ({"algo": "dappo"}, "algo is 'dappo'", "did you mean dapo?"),
    ({"kv_cache_gb": "inf"}, "kv_cache_gb is inf", "above 0"),
    ({"kv_cache_gb": 0}, "kv_cache_gb is 0.0", "above 0"),
    ({"max_new_tokens": 0}, "max_new_tokens is 0", "at least 1"),
    ({"max_num_seqs": 0}, "max_num_seqs is 0", "at least 1"),
    ({"max_prompt_tokens": 0}, "max_prompt_tokens is 0", "at least 1"),
    ({"stop_strings": ("",)}, "stop_strings holds an empty string", "leave it out"),
    ({"batch_size": 0}, "batch_size is 0", "at least 1"),
    ({"dapo_gen_batch_size": 0}, "dapo_gen_batch_size is 0", "at least 1"),
    ({"dapo_max_num_gen_batches": 0}, "dapo_max_num_gen_batches is 0", "at least 1"),
    ({"max_staleness": -1}, "max_staleness is -1", "0 or a number"),
    ({"mini_bs": 0}, "mini_bs is 0", "at least 1"),
    ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps is 0", "at least 1"),
    ({"max_tokens_per_pass": 0}, "max_tokens_per_pass is 0", "at least 1"),
    ({"max_skipped_updates": 0}, "max_skipped_updates is 0", "at least 1"),
    ({"lr": -1e-6}, "lr is -1e-06", "from 0 up"),
    ({"lr": "nan"}, "lr is nan", "from 0 up"),
    ({"lr_warmup_steps": -1}, "lr_warmup_steps is -1", "from 0 up"),
    ({"weight_decay": -1}, "weight_decay is -1.0", "from 0 up"),
    ({"adam_beta1": 1.0}, "adam_beta1 is 1.0", "from 0 to below 1, such as 0.9"),
    ({"adam_beta2": "nan"}, "adam_beta2 is nan", "from 0 to below 1, such as 0.9"),
    ({"grad_clip_norm": 0}, "grad_clip_norm is 0.0", "above 0"),
    ({"lr_schedule": "cosine"}, "lr_schedule is cosine but max_steps is not set", "set max_steps"),
    ({"min_lr": 1e-7}, "min_lr is 1e-07 but lr_schedule is constant", "cosine"),
    (
        {"min_lr": 1e-3, "lr_schedule": "cosine", "max_steps": 5},
        "min_lr is 0.001, above lr 1e-06",
        "at most lr",
    ),
    ({"epochs": 0}, "epochs is 0", "at least 1"),
    ({"max_steps": 0}, "max_steps is 0", "at least 1"),
    ({"max_rollout_tokens": 0}, "max_rollout_tokens is 0", "at least 1"),
    ({"seed": -1}, "seed is -1", "0 or a positive"),
    ({"eval_n": 0, **HELD_OUT}, "eval_n is 0", "at least 1"),
    ({"eval_interval": 0, **HELD_OUT}, "eval_interval is 0", "at least 1"),
    ({"save_interval": -1}, "save_interval is -1", "or 0"),
    ({"keep_checkpoints": 0}, "keep_checkpoints is 0", "at least 1"),
    ({"keep_best": True}, "keep_best is on but eval_dataset_path is not set", "held-out data"),
    ({"eval_interval": 5}, "eval_interval is 5 but eval_dataset_path is not set", "held-out data"),
]


@pytest.mark.parametrize(("settings", "problem", "fix"), REFUSED, ids=[str(row[0])[:60] for row in REFUSED])
def test_bad_settings_are_refused_by_name_and_value_with_a_fix(
    load: Callable[..., Any], settings: dict[str, Any], problem: str, fix: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(**settings)
    assert caught.value.problem.startswith(problem)
    assert fix in str(caught.value.fix)
    assert caught.value.exit_code == 2


# The setting, its value, and the run in which it acts; without that it does nothing and is refused.
IDLE: list[tuple[str, Any, dict[str, Any], dict[str, Any], str]] = [
    ("dapo_gen_batch_size", 4, {"algo": "grpo"}, {"dynamic_sampling": True}, "dynamic sampling is off"),
    ("dapo_max_num_gen_batches", 10, {"algo": "grpo"}, {"dynamic_sampling": True}, "dynamic sampling is off"),
    ("on_sampling_limit", "error", {"algo": "gspo"}, {"dynamic_sampling": True}, "dynamic sampling is off"),
    ("max_staleness", 0, {"dynamic_sampling": False}, {"dynamic_sampling": True}, "dynamic sampling is off"),
    ("dapo_overlong_penalty_factor", 1.0, {}, {"dapo_overlong_buffer_len": 4}, "dapo_overlong_buffer_len is 0"),
    ("adv_eps", 1e-8, {"algo": "dr_grpo"}, {"scale_advantages": "group"}, "advantages are not divided by anything"),
    ("adv_correction", 1, {"scale_advantages": "none"}, {"scale_advantages": "batch"}, "advantages are not divided"),
    ("eval_n", 4, {}, HELD_OUT, "eval_dataset_path is not set"),
]


@pytest.mark.parametrize(("name", "value", "idle", "acting", "reason"), IDLE, ids=[row[0] for row in IDLE])
def test_a_setting_that_would_do_nothing_is_refused_with_the_reason(
    load: Callable[..., Any], name: str, value: Any, idle: dict[str, Any], acting: dict[str, Any], reason: str
) -> None:
    """Even at its default value: who writes it down expects it to matter."""
    with pytest.raises(ConfigError, match=re.escape(f"{name} is given but {reason}")) as caught:
        load(**{**idle, name: value})
    assert caught.value.fix == f"leave {name} out"
    assert getattr(getattr(load(**{**idle, **acting, name: value}), OWNER[name]), name) == value
    load(**idle)


def test_a_truncated_distribution_is_allowed_by_an_explicit_word_b10(load: Callable[..., Any]) -> None:
    """B10: refused by default (above), allowed when the bias is accepted."""
    rollout = load(top_p=0.8, top_k=3, allow_biased_ratio=True).rollout
    assert (rollout.top_p, rollout.top_k) == (0.8, 3)


def test_the_overlong_switch_is_free_to_be_off_b39(load: Callable[..., Any]) -> None:
    """B39: off asks for nothing; one token less than the limit is the largest buffer."""
    assert load(max_new_tokens=1).algorithm.dapo_overlong_buffer_len == 0
    assert load(max_new_tokens=16, dapo_overlong_buffer_len=15).algorithm.dapo_overlong_buffer_len == 15
