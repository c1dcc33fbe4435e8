"""Three whole updates of a tiny model, number for number: what no other test asks about may not change unseen.

A change that alters numbers on purpose renews the file with `pytest tests/golden --renew-golden` and says why.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

GOLDEN = Path(__file__).with_name("golden.json")
METRICS = (
    "loss", "grad_norm", "lr", "entropy", "ratio_mean", "ratio_std", "pg_clipfrac_lower", "pg_clipfrac_upper",
    "rollout_logprobs_mean", "train_logprobs_mean", "rollout_train_logprob_abs_diff_mean", "dapo_raw_reward_mean",
    "dapo_shaped_reward_mean", "dapo_overlong_penalty_mean", "candidate_reward_mean", "response_length_mean",
    "response_length_max", "truncated_share", "optimizer_steps", "trained_tokens", "rollout_tokens",
    "dapo_gen_batches", "dapo_generated_groups", "dapo_qualified_groups", "dapo_filtered_groups",
    "dapo_discarded_qualified_groups", "dapo_buffered_groups", "epoch",
)  # fmt: skip
# 0, 1 or 2 marks for the letters of an answer, so that some groups agree and most do not.
REWARD = """
def reward_fn(record):
    return float(any(c.isdigit() for c in record.completion)) + float("a" in record.completion)
"""


@pytest.fixture(scope="module")
def golden_folder(tmp_path_factory, tiny_config, tokenizer):
    """The tiny Llama with weights from NumPy's frozen generator, which no version of torch or transformers changes."""
    folder = tmp_path_factory.mktemp("golden")
    module = LlamaForCausalLM(tiny_config())
    numbers = np.random.RandomState(0)
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            if "norm" not in name:
                parameter.copy_(torch.from_numpy(0.3 * numbers.standard_normal(parameter.shape)))
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def outcome(folder):
    """What is compared: each update's numbers, and the ids of every answer in the order written."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    groups = [json.loads(line) for line in (folder / "rollouts.jsonl").read_text().splitlines()]
    return {
        "metrics": [{name: line[name] for name in METRICS} for line in lines],
        "answers": [
            {
                "step": group["step"],
                "group": group["group"],
                "prompt_index": group["prompt_index"],
                "status": group["status"],
                "tokens": [one["tokens"] for one in group["completions"]],
            }
            for group in groups
        ],
    }


def test_a_run_repeats_the_recorded_one(run_training, golden_folder, request):
    """Token ids exactly, metrics to 1e-4."""
    folder = run_training(
        ckpt=str(golden_folder),
        prompts=[f"{a}+{b}=" for a in range(4) for b in range(3)],
        reward=REWARD,
        n_samples=4,
        max_new_tokens=10,
        batch_size=2,
        dapo_gen_batch_size=3,
        max_staleness=1,
        dapo_overlong_buffer_len=4,
        dapo_overlong_penalty_factor=0.5,
        temperature=0.9,
        mini_bs=2,
        gradient_accumulation_steps=2,
        lr=1e-3,
        lr_warmup_steps=1,
        max_steps=3,
    )
    now = outcome(folder)
    if request.config.getoption("--renew-golden"):
        GOLDEN.write_text(json.dumps(now, indent=1) + "\n")
    recorded = json.loads(GOLDEN.read_text())
    assert now["answers"] == recorded["answers"]
    assert len(now["metrics"]) == len(recorded["metrics"]) == 3
    for line, right in zip(now["metrics"], recorded["metrics"], strict=True):
        for name, value in right.items():
            assert line[name] == (value if value is None else pytest.approx(value, rel=1e-4, abs=1e-6)), name
