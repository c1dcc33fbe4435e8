"""Whole runs on a tiny model: what is counted, what is written, and how a run ends."""

from __future__ import annotations

import io
import json
import math
import shutil
import time

import pytest
import torch
from transformers import AutoModelForCausalLM

from dapo.errors import ConfigError, DataError, SamplingLimitError
from dapo.rollout.engine import RolloutCounters
from dapo.tracking.metrics_log import MetricsLog

BY_SAMPLE = "def reward_fn(record):\n    return float(record.metadata['sample_index'])\n"
CONSTANT = "def reward_fn(record):\n    return 1.0\n"
SLOWLY = "import time\n" + BY_SAMPLE.replace(
    "    return", "    time.sleep(0.03 * (record.metadata['prompt_index'] % 3))\n    return"
)
# Rows of an even number are constant, the others disagree.
ODD_ROWS = """
def reward_fn(record):
    return float(record.metadata["sample_index"]) if record.metadata["prompt_index"] % 2 else 0.0
"""
PROMPTS = [f"{number}+1=" for number in range(8)]


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def rollouts(folder):
    return [json.loads(line) for line in (folder / "rollouts.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("algo", ["dapo", "grpo", "gspo", "dr_grpo"])
def test_every_algorithm_makes_its_updates(run_training, algo):
    folder = run_training(prompts=PROMPTS[:4], reward=BY_SAMPLE, algo=algo, batch_size=2, mini_bs=2, lr=1e-3)
    lines = metrics(folder)
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        assert line["optimizer_steps"] == 2  # 2 groups of 2 answers, 2 answers a step
        assert math.isfinite(line["loss"])
        assert math.isfinite(line["grad_norm"])
        assert line["grad_norm"] > 0
        assert line["dapo_raw_reward_mean"] == 0.5
        assert line["ratio_mean"] == pytest.approx(1.0, abs=0.1)  # to the rollout policy, at most a step away
    AutoModelForCausalLM.from_pretrained(folder / "final")


def test_constant_groups_without_dynamic_sampling_are_skipped_and_said_so(run_training, tiny_folder):
    """B32: no NaN, no step, the weights untouched, and the update is in the log."""
    from safetensors.torch import load_file

    folder = run_training(prompts=PROMPTS[:4], reward=CONSTANT, algo="grpo", batch_size=2, lr=1e-2, weight_decay=0.5)
    for line in metrics(folder):
        assert (line["loss"], line["optimizer_steps"], line["trained_tokens"]) == (0.0, 0, 0)
        assert line["dapo_all_correct_groups"] == 2
        assert all(value is None or math.isfinite(value) for value in line.values())
    before, after = (load_file(path / "model.safetensors") for path in (tiny_folder(), folder / "final"))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_metrics_count_groups_before_and_after_the_filter(run_training):
    """4 of 8 rows disagree; batches of 2 whole groups: 2 updates, and every row is drawn once."""
    folder = run_training(prompts=PROMPTS, reward=ODD_ROWS, batch_size=2, mini_bs=4)
    lines, groups = metrics(folder), rollouts(folder)
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        generated, kept = line["dapo_generated_groups"], line["dapo_qualified_groups"]
        assert line["dapo_filtered_groups"] == line["dapo_all_wrong_groups"] == generated - kept
        assert line["dapo_sampling_efficiency"] == pytest.approx(kept / generated)
        assert line["dapo_raw_reward_mean"] == 0.5
        assert line["candidate_reward_mean"] == pytest.approx(0.5 * kept / generated)
    trained = [group for group in groups if group["status"] == "trained"]
    assert sorted(group["prompt_index"] for group in trained) == [1, 3, 5, 7]
    assert all(group["prompt_index"] % 2 == 0 for group in groups if group["status"] == "constant")


def test_every_trained_answer_is_written_with_its_reward_and_advantage(run_training):
    """B29: two answers with rewards 0 and 1 have advantages -1 and 1; ids, lengths and log-probabilities agree."""
    folder = run_training(prompts=PROMPTS, reward=ODD_ROWS, batch_size=2)
    for group in rollouts(folder):
        for sample, one in enumerate(group["completions"]):
            assert len(one["tokens"]) == len(one["logprobs"]) <= 6
            if group["status"] == "trained":
                assert one["reward"] == sample
                assert one["advantage"] == pytest.approx(2 * sample - 1, abs=1e-6)
            else:
                assert (one["reward"], one["advantage"]) == (0.0, None)


def test_what_the_loss_saw_of_each_trained_answer_is_written(run_training):
    """Before the first step of an update the weights are those that wrote the answers; after it they have moved."""
    folder = run_training(prompts=PROMPTS, reward=ODD_ROWS, batch_size=2, mini_bs=2, lr=1e-1, max_steps=1)
    (line,) = metrics(folder)
    trained = [one for group in rollouts(folder) if group["status"] == "trained" for one in group["completions"]]
    gaps = [
        max(abs(new - old) for new, old in zip(one["train_logprobs"], one["logprobs"], strict=True)) for one in trained
    ]
    assert len(gaps) == 4
    assert max(gaps[:2]) < 1e-4  # 2 answers a step
    assert min(gaps[2:]) > 1e-2
    held = [sum(len(one[f"clipped_{bound}"]) for one in trained) for bound in ("lower", "upper")]
    assert sum(held) > 0
    assert line["pg_clipfrac_lower"] == pytest.approx(held[0] / line["trained_tokens"])
    assert line["pg_clipfrac_upper"] == pytest.approx(held[1] / line["trained_tokens"])
    probabilities = [math.exp(one["logprobs"][place]) for one in trained for place in one["clipped_upper"]]
    mean = sum(probabilities) / len(probabilities) if probabilities else None
    assert line["up_clipped_prob_mean"] == (mean and pytest.approx(mean))
    dropped = [one for group in rollouts(folder) if group["status"] != "trained" for one in group["completions"]]
    assert all(one["train_logprobs"] is one["clipped_upper"] is one["clipped_lower"] is None for one in dropped)


def test_answers_that_overlong_filtering_leaves_out_are_written_as_not_trained(run_training):
    folder = run_training(prompts=PROMPTS, reward=BY_SAMPLE, batch_size=8, mask_overlong_truncated=True)
    trained = {
        (one["stop_reason"], one["train_logprobs"] is not None)
        for group in rollouts(folder)
        for one in group["completions"]
    }
    assert trained == {("stop", True), ("length", False)}


def test_an_update_that_is_skipped_has_trained_no_answer(run_training):
    folder = run_training(prompts=PROMPTS[:2], reward=CONSTANT, algo="grpo", batch_size=2)
    assert all(one["train_logprobs"] is None for group in rollouts(folder) for one in group["completions"])


def test_collection_goes_on_over_an_epoch_s_border_and_the_last_batch_is_smaller(run_training):
    """B28: 5 rows, 2 epochs, batches of 4: 4, 4 over the border, and the last 2. Each row twice."""
    folder = run_training(prompts=PROMPTS[:5], reward=BY_SAMPLE, batch_size=4, epochs=2)
    lines = metrics(folder)
    assert [line["dapo_generated_groups"] for line in lines] == [4, 4, 2]
    assert [line["epoch"] for line in lines] == [0, 1, 2]
    assert sorted(group["prompt_index"] for group in rollouts(folder)) == sorted([*range(5), *range(5)])


def test_fewer_prompts_than_a_batch_make_one_smaller_update(run_training):
    """B28: 3 prompts, batch 16: one update on 3 groups, never none."""
    folder = run_training(prompts=PROMPTS[:3], reward=BY_SAMPLE, batch_size=16)
    (line,) = metrics(folder)
    assert line["dapo_generated_groups"] == 3
    assert line["trained_tokens"] == line["rollout_tokens"]


def test_steps_count_updates_and_not_rounds_and_the_rate_follows_them(run_training):
    """One prompt a round, half of the rounds in vain: 4 updates with warm-up rates 1/3, 2/3, 1 and 1."""
    folder = run_training(
        prompts=PROMPTS, reward=ODD_ROWS, batch_size=1, dapo_gen_batch_size=1, lr=3e-6, lr_warmup_steps=2
    )
    lines = metrics(folder)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert [line["lr"] for line in lines] == pytest.approx([1e-6, 2e-6, 3e-6, 3e-6])
    assert sum(line["dapo_gen_batches"] for line in lines) >= 4
    assert max(line["dapo_gen_batches"] for line in lines) > 1


def test_max_rollout_tokens_ends_the_run_after_the_update_that_reached_it(run_training):
    """Answers have at most 4 tokens, 2 groups of 2 at most 16: one update cannot reach 17."""
    settings = {"prompts": PROMPTS, "reward": BY_SAMPLE, "batch_size": 2, "epochs": 9, "max_new_tokens": 4}
    assert len(metrics(run_training(**settings, max_rollout_tokens=1, name="one"))) == 1
    lines = metrics(run_training(**settings, max_rollout_tokens=17, name="more"))
    tokens = [line["rollout_tokens"] for line in lines]
    assert len(tokens) > 1
    assert sum(tokens[:-1]) < 17 <= sum(tokens)


def test_every_token_drawn_is_counted_whatever_becomes_of_it_and_however_fast_the_reward_is(run_training, monkeypatch):
    """Rounds of 8 for batches of 1 are stopped early, in the middle of other answers; a slow reward changes nothing."""
    drawn = []
    plain = RolloutCounters.__init__
    monkeypatch.setattr(RolloutCounters, "__init__", lambda self: (plain(self), drawn.append(self))[0])
    settings = {"prompts": PROMPTS * 2, "batch_size": 1, "dapo_gen_batch_size": 8, "max_steps": 3, "max_new_tokens": 40}
    counted = []
    for name, reward in (("fast", BY_SAMPLE), ("slow", SLOWLY)):
        folder = run_training(**settings, reward=reward, name=name)
        counted.append([line["rollout_tokens"] for line in metrics(folder)])
        in_groups = sum(len(one["tokens"]) for group in rollouts(folder) for one in group["completions"])
        assert sum(counted[-1]) == drawn[-1].sampled_tokens > in_groups
    assert counted[0] == counted[1]


def test_the_seconds_of_an_update_include_the_writing_of_the_one_before(run_training, monkeypatch):
    plain = MetricsLog.write
    monkeypatch.setattr(MetricsLog, "write", lambda *given: (plain(*given), time.sleep(0.2))[0])
    lines = metrics(run_training(prompts=PROMPTS, reward=BY_SAMPLE, batch_size=2, max_steps=3))
    assert all(line["seconds_total"] >= 0.2 for line in lines[1:])


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        (CONSTANT, "update 1 is skipped: every group agrees, so nothing can be learned"),
        (BY_SAMPLE, "update 1 is skipped: overlong filtering leaves nothing, since every answer was cut at the limit"),
    ],
)
def test_why_an_update_is_skipped_is_said_as_it_is(run_training, table_model, reward, words):
    """A model that never ends an answer, and overlong filtering: where groups disagree, that is not said of them."""
    table = torch.zeros(64, 64)
    table[:, 0] = -1e4
    output = io.StringIO()
    settings = {"algo": "grpo", "mask_overlong_truncated": True, "batch_size": 2, "max_steps": 1}
    if reward == CONSTANT:
        settings["mask_overlong_truncated"] = False
    folder = table_model(table).module.name_or_path
    run_training(prompts=PROMPTS, reward=reward, output=output, ckpt=folder, **settings)
    assert words in output.getvalue()


def test_a_folder_whose_generation_config_the_library_will_not_write_is_trained_and_saved(
    run_training, tiny_folder, tmp_path
):
    """A temperature without do_sample, as many chat models ship it."""
    folder = shutil.copytree(tiny_folder(), tmp_path / "chat")
    (folder / "generation_config.json").write_text('{"temperature": 0.9, "eos_token_id": 0}\n')
    run = run_training(prompts=PROMPTS, reward=BY_SAMPLE, batch_size=2, max_steps=2, save_interval=1, ckpt=str(folder))
    for saved in (run / "final", run / "checkpoints/step_000001/model"):
        assert (saved / "generation_config.json").read_text() == '{"temperature": 0.9, "eos_token_id": 0}\n'


def test_max_steps_ends_the_run(run_training):
    assert len(metrics(run_training(prompts=PROMPTS, reward=BY_SAMPLE, batch_size=2, max_steps=3))) == 3


def test_surplus_groups_are_trained_first_while_they_are_young_enough(run_training):
    """B30: rounds of 6 for batches of 4 with max_staleness 1: 6 drawn, 2 left; then 2 + 4 of 6 drawn, 4 left."""
    settings = {"prompts": PROMPTS * 2, "reward": BY_SAMPLE, "batch_size": 4, "dapo_gen_batch_size": 6}
    kept = run_training(**settings, max_staleness=1, max_steps=2, name="kept")
    lines, groups = metrics(kept), rollouts(kept)
    assert lines[0]["dapo_buffered_groups"] == 2
    second = [group for group in groups if group["step"] == 2 and group["status"] == "trained"]
    assert [group["version"] for group in second] == [0, 0, 1, 1]
    trained = [group["group"] for group in groups if group["status"] == "trained"]
    assert len(trained) == len(set(trained)) == 8
    dropped = run_training(**settings, max_steps=2, name="dropped")
    assert {group["version"] for group in rollouts(dropped) if group["step"] == 2} == {1}
    assert all(line["dapo_buffered_groups"] == 0 for line in metrics(dropped))


def test_the_filter_looks_at_raw_rewards_and_the_penalty_comes_after(run_training):
    """All rewards are 1, though the penalties of 1 to 6 tokens differ: no group qualifies."""
    with pytest.raises(DataError, match="none of which disagreed"):
        run_training(
            prompts=PROMPTS, reward=CONSTANT, batch_size=2, dapo_overlong_buffer_len=5, dapo_max_num_gen_batches=99
        )


def test_penalties_are_reported_beside_raw_and_shaped_rewards(run_training):
    """B39: answers of 6 tokens, the limit, cost 1; shaped is raw plus penalty."""
    folder = run_training(prompts=PROMPTS[:4], reward=BY_SAMPLE, batch_size=4, dapo_overlong_buffer_len=5)
    (line,) = metrics(folder)
    answers = [one for group in rollouts(folder) for one in group["completions"]]
    penalty = sum(min(0.0, (6 - 5 - len(one["tokens"])) / 5) for one in answers) / len(answers)
    assert line["dapo_overlong_penalty_mean"] == pytest.approx(penalty)
    assert penalty < 0
    assert line["dapo_shaped_reward_mean"] == pytest.approx(0.5 + penalty)
    assert line["dapo_raw_reward_mean"] == 0.5


def test_the_filter_may_look_at_another_number_that_the_reward_returns(run_training):
    """`acc` disagrees where the score does not."""
    reward = "def reward_fn(record):\n    return {'score': 1.0, 'acc': record.metadata['sample_index']}\n"
    with pytest.raises(DataError):
        run_training(prompts=PROMPTS[:2], reward=reward, batch_size=2, name="score")
    folder = run_training(prompts=PROMPTS[:2], reward=reward, batch_size=2, filter_groups_metric="acc", name="acc")
    (line,) = metrics(folder)
    assert line["dapo_qualified_groups"] == 2
    assert line["reward/acc"] == 0.5
    with pytest.raises(ConfigError, match="filter_groups_metric is 'other'") as refused:
        run_training(prompts=PROMPTS[:2], reward=reward, filter_groups_metric="other", name="other")
    assert "acc, score" in refused.value.fix or "score, acc" in refused.value.fix


def test_used_up_rounds_end_the_run_with_counts_and_keep_what_was_trained(run_training, tmp_path):
    """From the second update on every group is right: 2 rounds of 2, and the model of the first update is saved."""
    reward = """
from pathlib import Path
def reward_fn(record):
    drawn = Path(__file__).with_name("drawn")
    with drawn.open("a") as file:
        file.write(".")
    return float(record.metadata["sample_index"]) if drawn.stat().st_size <= 4 else 1.0
"""
    with pytest.raises(SamplingLimitError, match="only 0 of 2 groups disagree after 2 rounds") as stopped:
        run_training(prompts=PROMPTS, reward=reward, batch_size=2, dapo_max_num_gen_batches=2)
    assert "4 groups generated, 0 kept (2 needed), 4 all right, 0 all wrong" in stopped.value.problem
    assert "too easy" in stopped.value.fix
    assert stopped.value.exit_code == 1
    assert [line["step"] for line in metrics(tmp_path / "run")] == [1]
    AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "final")


def test_train_partial_updates_on_the_groups_there_are(run_training):
    """1 of 2 rounds of one row qualifies: the update has 1 group of the 2 asked for."""
    folder = run_training(
        prompts=PROMPTS, reward=ODD_ROWS, batch_size=3, dapo_gen_batch_size=1, dapo_max_num_gen_batches=4,
        on_sampling_limit="train_partial",
    )  # fmt: skip
    lines = metrics(folder)
    trained = [
        sum(group["status"] == "trained" and group["step"] == line["step"] for group in rollouts(folder))
        for line in lines
    ]
    assert all(0 < count <= 3 for count in trained)
    assert any(count < 3 and line["dapo_gen_batches"] == 4 for count, line in zip(trained, lines, strict=True))
    assert sum(trained) <= 4


def test_held_out_accuracy_is_measured_before_after_and_every_eval_interval(run_training, tmp_path):
    """Steps 0, 2 and 4 of 5, and the last. The 3 answers to each prompt have acc 0, 1 and 2: mean 1."""
    (tmp_path / "held.jsonl").write_text('{"prompt": "2+2="}\n{"prompt": "3+3="}\n')
    reward = (
        "def reward_fn(record):\n    i = record.metadata['sample_index']\n    return {'score': 5.0 * i, 'acc': i}\n"
    )
    folder = run_training(
        prompts=PROMPTS, reward=reward, batch_size=1, max_steps=5, eval_interval=2, eval_n=3,
        eval_dataset_path=str(tmp_path / "held.jsonl"),
    )  # fmt: skip
    measured = {line["step"]: line["heldout_accuracy"] for line in metrics(folder) if "heldout_accuracy" in line}
    assert measured == {0: 1.0, 2: 1.0, 4: 1.0, 5: 1.0}


def test_the_seed_decides_what_is_drawn_and_the_same_seed_repeats_the_run(run_training):
    """Tokens, weights and metrics are the same twice; another seed writes other answers."""

    def run(name, seed):
        folder = run_training(prompts=PROMPTS, reward=BY_SAMPLE, batch_size=4, lr=1e-3, seed=seed, name=name)
        weights = (folder / "final" / "model.safetensors").read_bytes()
        return (folder / "rollouts.jsonl").read_bytes(), weights, [line["loss"] for line in metrics(folder)]

    first, again, other = run("first", 0), run("again", 0), run("other", 1)
    assert first == again
    assert first[0] != other[0]
    assert first[1] != other[1]


def test_new_weights_write_the_next_answers(run_training):
    """B83: with a large rate the first answers are the same as with none, and the later ones are not."""

    def answers(name, lr):
        groups = rollouts(run_training(prompts=PROMPTS[:4], reward=BY_SAMPLE, batch_size=2, lr=lr, name=name))
        return [[[one["tokens"] for one in g["completions"]] for g in groups if g["step"] == step] for step in (1, 2)]

    still, moved = answers("still", 0.0), answers("moved", 0.1)
    assert still[0] == moved[0]
    assert still[1] != moved[1]


def test_the_first_ratio_after_each_rollout_is_one(run_training):
    """One optimizer step an update: old and new policy are the same, at another temperature too."""
    folder = run_training(prompts=PROMPTS, reward=BY_SAMPLE, batch_size=4, mini_bs=99, lr=1e-2, temperature=0.7)
    for line in metrics(folder):
        assert line["ratio_mean"] == pytest.approx(1.0, abs=1e-4)
        assert line["rollout_train_logprob_abs_diff_mean"] < 1e-4


def test_a_failed_start_leaves_no_run_folder(run_training, tmp_path):
    with pytest.raises(DataError):
        run_training(prompts=[], reward=BY_SAMPLE)
    assert not (tmp_path / "run").exists()


def test_a_run_that_ends_in_groups_that_agree_is_still_measured_at_its_end(run_training, tmp_path):
    """Only the first group drawn disagrees: one update, whose being the last shows after it is written."""
    (tmp_path / "held.jsonl").write_text('{"prompt": "2+2="}\n')
    reward = """
from pathlib import Path
def reward_fn(record):
    drawn = Path(__file__).with_name("drawn")
    with drawn.open("a") as file:
        file.write(".")
    return float(record.metadata["sample_index"]) if drawn.stat().st_size <= 4 else 1.0
"""
    folder = run_training(
        prompts=PROMPTS, reward=reward, batch_size=1, eval_n=2, eval_dataset_path=str(tmp_path / "held.jsonl"),
        dapo_max_num_gen_batches=99,
    )  # fmt: skip
    lines = metrics(folder)
    assert [line["step"] for line in lines if "loss" in line] == [1]
    assert [line["step"] for line in lines if "heldout_accuracy" in line] == [0, 1]
