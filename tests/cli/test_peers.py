"""Names that people bring from verl, TRL, transformers and OpenRLHF: what they are told, as flags and in recipes."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest

from dapo.cli.main import main
from dapo.config import OWNER, load_config
from dapo.coordination.sft_settings import NEVER_ACTS, SftConfig
from dapo.errors import ConfigError
from dapo.evaluation.settings import EvalSettings
from dapo.peers import ROWS, SYSTEMS, VERL_PREFIX, Row, all_names, markdown

OURS = {
    "train": {*OWNER, "resume"},
    "sft": {*SftConfig.owners(), "resume"} - set(NEVER_ACTS),
    "eval": {field.name for field in fields(EvalSettings)},
}
SAME_NAME = {
    "adam_beta1",
    "adam_beta2",
    "gradient_accumulation_steps",
    "max_steps",
    "seed",
    "temperature",
    "weight_decay",
}
"""Settings that TRL or transformers call alike."""
NO_PEER = {
    "ratio", "adv_eps", "adv_correction", "dedup_prompts", "reward_workers", "reward_timeout_s", "reward_memory_mb",
    "allow_biased_ratio", "stop_strings", "max_staleness", "on_sampling_limit", "max_skipped_updates",
    "max_rollout_tokens", "alarm_window", "alarm_interval", "alarm_entropy", "alarm_clip_share",
    "alarm_informative_share", "alarm_length_growth", "alarm_mismatch_growth", "right_from",
}  # fmt: skip
"""Settings that the others have no name for."""


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["train", "--num-generations", "8"],
            "error: --num-generations is TRL's name; here it is --n-samples\n  fix: write --n-samples 8\n",
        ),
        (
            ["train", "--model_name_or_path=m"],
            "error: --model_name_or_path is TRL's name; here it is --ckpt\n  fix: write --ckpt m\n",
        ),
        (
            ["train", "--beta", "0.04"],
            "error: --beta is TRL's name; here there is no such setting\n"
            "  fix: leave it out: it belongs to a KL term, and DAPO has none\n",
        ),
        (
            ["train", "--bf16"],
            "error: --bf16 is transformers' and OpenRLHF's name; here it is --dtype\n"
            "  fix: use --dtype (bfloat16 for the switch bf16; float16 is not offered)\n",
        ),
        (
            ["train", "--per_device_train_batch_size", "4"],
            "error: --per_device_train_batch_size is transformers' name; here it is --mini-bs\n"
            "  fix: use --mini-bs (answers of one pass; the prompts of an update are batch_size)\n",
        ),
        (
            ["train", "--report-to", "wandb"],
            "error: --report-to is transformers' name; here there is no such setting\n"
            "  fix: leave it out: every update is in metrics.jsonl of the run folder, and `dapo plot RUN` draws it\n",
        ),
        (
            ["train", "actor_rollout_ref.rollout.n=8", "data.train_files=x.parquet"],
            "error: actor_rollout_ref.rollout.n is verl's name; here it is --n-samples\n  fix: write --n-samples 8\n",
        ),
        (
            ["train", "recipe.toml", "+data.train_files=x.parquet"],
            "error: +data.train_files is verl's name; here it is --dataset-path\n"
            "  fix: write --dataset-path x.parquet\n",
        ),
        (
            ["train", "--ppo_mini_batch_size", "32"],
            "error: --ppo_mini_batch_size is verl's name; here it is --mini-bs, --gradient-accumulation-steps\n"
            "  fix: use --mini-bs, --gradient-accumulation-steps "
            "(their product, a step's answers; verl's mini-batch counts prompts, so multiply it by n_samples)\n",
        ),
        (
            ["train", "--num-generation", "8"],
            "error: unknown flag --num-generation: num_generations is TRL's name; here it is --n-samples\n"
            "  fix: write --n-samples 8\n",
        ),
        (["train", "lr=1e-5"], "error: unexpected argument 'lr=1e-5'\n  fix: write --lr 1e-5\n"),
        (
            ["train", "--device", "cpu"],
            "error: --device is a flag of `dapo eval`, not of `dapo train`\n  fix: here it is --train-devices\n",
        ),
        (
            ["eval", "--n-samples", "8"],
            "error: --n-samples is a flag of `dapo train`, not of `dapo eval`\n  fix: here it is --n\n",
        ),
        (
            ["sft", "--n-samples", "8"],
            "error: --n-samples is a flag of `dapo train`, not of `dapo sft`\n  fix: leave it out\n",
        ),
    ],
)
def test_a_name_from_elsewhere_is_answered_with_the_name_here(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(words, capsys) == message


CASES = [(name, row) for row in ROWS for name in dict.fromkeys(n for key in SYSTEMS for n in getattr(row, key).split())]


@pytest.mark.parametrize(("name", "row"), CASES, ids=[name for name, _ in CASES])
def test_every_name_of_the_table_is_known_as_a_flag_or_in_verls_way(
    name: str, row: Row, capsys: pytest.CaptureFixture[str]
) -> None:
    for command, ours in OURS.items():
        prefix = VERL_PREFIX if name.startswith(("actor.", "rollout.", "model.")) else ""
        word = f"{prefix}{name}=1" if "." in name else f"--{name.replace('_', '-')}=1"
        error, fix = said([command, word], capsys).splitlines()
        wanted = [each for each in row.here.split() if each in ours]
        if not wanted and row.here:
            continue  # a thing of another command
        here = ", ".join("--" + each.replace("_", "-") for each in wanted)
        assert error.startswith(f"error: {word.split('=')[0]} is ")
        assert error.endswith(f"; here it is {here}" if here else "; here there is no such setting")
        assert row.note in fix


def test_a_name_stands_for_one_thing() -> None:
    assert [name for name, count in Counter(all_names()).items() if count > 1] == []


def test_every_setting_has_a_name_elsewhere_or_is_known_to_have_none() -> None:
    """A new setting needs a place in one of the two; a setting that is gone must leave both."""
    named = {name for row in ROWS for name in row.here.split()}
    ours = {name for names in OURS.values() for name in names}
    assert named <= ours
    assert ours - named - SAME_NAME == NO_PEER
    assert not named & NO_PEER


def test_no_name_from_elsewhere_is_a_setting_of_ours_that_means_something_else() -> None:
    """It would be taken without a word."""
    assert set(all_names()) & (OURS["train"] | OURS["sft"] | OURS["eval"]) == set()


def test_the_table_in_the_docs_is_the_one_in_code() -> None:
    """Renewed by `python -c "from dapo.peers import markdown; print(markdown())"`."""
    assert markdown() in (Path(__file__).parents[2] / "docs/algorithm.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("recipe", "problem", "fix"),
    [
        ("num_generations = 8\n", "num_generations is TRL's name; here it is n_samples", "use n_samples"),
        ("[training]\nlearning_rate = 1\n", "learning_rate is transformers' name; here it is lr", "use lr"),
        (
            "[actor_rollout_ref.rollout]\nn = 8\n",
            "actor_rollout_ref.rollout.n is verl's name; here it is n_samples",
            "use n_samples",
        ),
        ("[data]\ntrain_files = 'x'\n", "data.train_files is verl's name; here it is dataset_path", "use dataset_path"),
        (
            "algorithm.filter_groups.enable = true\n",
            "algorithm.filter_groups.enable is verl's name; here it is dynamic_sampling",
            "use dynamic_sampling (on for algo dapo without being asked)",
        ),
        ("[trainer]\ntotal_epochs = 3\n", "trainer.total_epochs is verl's name; here it is epochs", "use epochs"),
    ],
)
def test_a_recipe_with_names_from_elsewhere_is_answered_alike(
    tmp_path: Path, recipe: str, problem: str, fix: str
) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(recipe)
    with pytest.raises(ConfigError) as caught:
        load_config(path, {})
    assert (caught.value.problem, caught.value.fix) == (problem, fix)


def test_underscores_are_taken_for_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    """Up to the next complaint, which is about the value."""
    need = ["--ckpt", "m", "--dataset_path=d", "--reward", "math"]
    assert said(["train", *need, "--n_samples", "1"], capsys).startswith("error: n_samples is 1")
    assert said(["train", *need, "--batch_size=0"], capsys).startswith("error: batch_size is 0")
    assert said(["train", *need, "--no_dedup_prompts", "--seed=-1"], capsys).startswith("error: seed is -1")
