"""The command line that people bring from a sister system, and what it leaves behind; as a real process."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tomllib

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

REWARD = """
def reward_fn(record):
    if record.prompt.startswith("Continue"):
        return 1.0
    return float(record.metadata["sample_index"])
"""
FLAGS = (
    "--algo dapo --ckpt {ckpt} --model-hub hf --dataset-path validation.jsonl --reward-fn-path reward.py --epochs 1 "
    "--max-steps 1 --world-size 1 --tp-size 1 --train-devices 0 --batch-size 1 --dapo-gen-batch-size 1 "
    "--dapo-max-num-gen-batches 2 --n-samples 2 --mini-bs 1 --gradient-accumulation-steps 1 --max-prompt-tokens 64 "
    "--max-new-tokens 4 --temperature 1.0 --attn-backend native --eager-decode --no-activation-checkpointing"
)
FIELDS = {
    "step", "dapo_gen_batches", "dapo_generated_groups", "dapo_qualified_groups", "dapo_filtered_groups",
    "dapo_sampling_efficiency", "dapo_discarded_qualified_groups", "loss", "grad_norm", "lr", "entropy", "ratio_mean",
    "ratio_std", "pg_clipfrac", "pg_clipfrac_lower", "pg_clipfrac_upper", "rollout_logprobs_mean",
    "train_logprobs_mean", "dapo_raw_reward_mean", "dapo_shaped_reward_mean", "dapo_overlong_penalty_mean",
    "dapo_all_correct_groups", "dapo_all_wrong_groups", "response_length_mean", "response_length_max",
    "truncated_share", "rollout_tokens_per_s", "train_tokens_per_s", "seconds_rollout", "seconds_reward",
    "seconds_update", "seconds_total",
}  # fmt: skip


def dapo(folder, *arguments):
    """The command in `folder`, without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "dapo.cli.main", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=180,
    )


def prepare(folder, *prompts):
    (folder / "validation.jsonl").write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    (folder / "reward.py").write_text(REWARD)


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def sister_run(tmp_path_factory, tiny_folder):
    """The command as it stands: its process and its run folder, which has a name of its own making."""
    folder = tmp_path_factory.mktemp("sister")
    prepare(folder, "Continue this short sequence: 1, 2,", "Name one primary color:")
    done = dapo(folder, "train", *FLAGS.format(ckpt=tiny_folder()).split())
    assert done.returncode == 0, done.stderr
    (run,) = (folder / "runs").iterdir()
    return done, run


def test_round_one_qualifies_no_group_and_round_two_one_then_one_update_is_made(sister_run):
    """The first prompt's answers are all right; the second's score 0 and 1."""
    (line,) = metrics(sister_run[1])
    assert line["step"] == 1
    assert line["dapo_gen_batches"] == 2
    assert line["dapo_generated_groups"] == 2
    assert line["dapo_qualified_groups"] == 1
    assert line["dapo_filtered_groups"] == 1
    assert line["dapo_sampling_efficiency"] == 0.5
    assert line["dapo_discarded_qualified_groups"] == 0
    assert line["dapo_all_correct_groups"] == 1
    assert line["dapo_all_wrong_groups"] == 0
    assert line["dapo_raw_reward_mean"] == 0.5
    assert math.isfinite(line["loss"])
    assert math.isfinite(line["grad_norm"])
    assert line["ratio_mean"] == pytest.approx(1.0, abs=1e-3)
    assert line["optimizer_steps"] == 2  # 2 answers, mini_bs 1


def test_the_line_of_an_update_holds_every_number_that_is_promised(sister_run):
    (line,) = metrics(sister_run[1])
    assert line.keys() >= FIELDS
    assert all(line[name] is not None for name in FIELDS)


def test_the_run_folder_is_named_by_time_and_algorithm_and_holds_the_resolved_settings(sister_run, tiny_folder):
    run = sister_run[1]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-\d{6}-dapo", run.name)
    settings = tomllib.loads((run / "config.toml").read_text())
    assert settings["model"]["ckpt"] == str(tiny_folder())
    assert settings["collection"]["dapo_max_num_gen_batches"] == 2
    assert settings["rollout"]["max_new_tokens"] == 4
    assert settings["training"]["adam_beta2"] == 0.999  # a default
    assert settings["run"]["train_devices"] == "0"


def test_every_rollout_is_in_the_run_folder(sister_run):
    groups = [json.loads(line) for line in (sister_run[1] / "rollouts.jsonl").read_text().splitlines()]
    assert {group["prompt_index"]: group["status"] for group in groups} == {0: "constant", 1: "trained"}
    trained = next(group for group in groups if group["status"] == "trained")
    assert [one["reward"] for one in trained["completions"]] == [0.0, 1.0]
    assert [one["advantage"] for one in trained["completions"]] == pytest.approx([-1.0, 1.0], abs=1e-6)
    for group in groups:
        for one in group["completions"]:
            assert 1 <= len(one["tokens"]) == len(one["logprobs"]) <= 4


def test_the_final_model_loads_in_plain_transformers_and_was_trained(sister_run, tiny_folder):
    final = sister_run[1] / "final"
    model, start = AutoModelForCausalLM.from_pretrained(final), AutoModelForCausalLM.from_pretrained(tiny_folder())
    assert not torch.equal(model.lm_head.weight, start.lm_head.weight)
    torch.testing.assert_close(model.lm_head.weight, start.lm_head.weight, atol=1e-5, rtol=0)  # 2 steps of 1e-6
    assert AutoTokenizer.from_pretrained(final)("1+1")["input_ids"]


def test_a_gpu_number_without_a_gpu_means_the_cpu_and_is_said_once(sister_run):
    output = sister_run[0].stdout + sister_run[0].stderr
    assert output.count("no GPU here") == 1


def test_without_a_terminal_the_output_is_plain_lines(sister_run):
    assert "\x1b" not in sister_run[0].stdout
    assert "Traceback" not in sister_run[0].stderr


def test_used_up_rounds_exit_with_1_and_say_the_counts_and_the_fix(tmp_path, tiny_folder):
    """Both prompts constant, and a third that no round is left for."""
    prepare(tmp_path, "Continue a", "Continue b", "Continue c")
    done = dapo(tmp_path, "train", *FLAGS.format(ckpt=tiny_folder()).split(), "--save-path", "run")
    assert done.returncode == 1
    assert "error: only 0 of 1 groups disagree after 2 rounds: 2 groups generated, 0 kept (1 needed)" in done.stderr
    assert "2 all right, 0 all wrong" in done.stderr
    assert "fix:" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "final").exists()


@pytest.mark.parametrize(
    ("flags", "name"),
    [("--temperature 0", "temperature is 0"), ("--n-samples 1", "n_samples is 1"), ("--ckpt ./no", "ckpt ./no")],
)
def test_a_mistake_exits_with_2_and_leaves_no_run_folder(tmp_path, tiny_folder, flags, name):
    prepare(tmp_path, "Continue a")
    command = FLAGS.format(ckpt=tiny_folder()).split() + flags.split()
    done = dapo(tmp_path, "train", *command, "--save-path", "run")
    assert done.returncode == 2
    assert f"error: {name}" in done.stderr
    assert "  fix: " in done.stderr
    assert not (tmp_path / "run").exists()
