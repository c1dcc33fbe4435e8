"""Supervised training: what is learned, by which gradient, and what every setting does."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from dapo.coordination.sft import SftRun, mean_loss
from dapo.coordination.sft_parts import assemble
from dapo.coordination.stopping import StopRequest
from dapo.errors import ConfigError, DataError, ModelError, TrainingError
from dapo.models.checks import CountedAttention
from dapo.models.new_model import byte_tokenizer
from dapo.models.packed_attention import Family, FamilyAttention
from dapo.tracking.plain_display import PlainDisplay

EOS = 0
WORDS = ("a", "be", "cat", "dogs", "eagle", "ferret")
GRADIENT_IS_KEPT = {"adam_beta1": 0.0, "grad_clip_norm": math.inf, "batch_size": 6, "max_steps": 1}
"""AdamW's first moment is then the gradient of the one step itself."""


def cross_entropy(folder: str, rows: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> tuple[Any, torch.Tensor]:
    """Model and loss as a hand-written loop has them: prompt tokens are labelled -100, the others averaged at once."""
    module = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    total, tokens = torch.zeros(()), 0
    for prompt, answer in rows:
        labels = torch.tensor([-100] * len(prompt) + list(answer))
        logits = module(input_ids=torch.tensor([[*prompt, *answer]])).logits[0]
        total = total + torch.nn.functional.cross_entropy(logits[:-1], labels[1:], ignore_index=-100, reduction="sum")
        tokens += len(answer)
    return module, total / tokens


@pytest.fixture
def demonstrations(ids: Any) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(ids(f"word {number}:"), (*ids(word), EOS)) for number, word in enumerate(WORDS)]


@pytest.mark.parametrize("mini_bs", [1, 4, 6])
def test_the_gradient_is_that_of_a_hand_written_cross_entropy_over_the_answers_alone(
    sft_runs: Any, demonstrations: Any, mini_bs: int
) -> None:
    """27 answer tokens: 1 + 2 + ... + 6 letters and 6 end tokens. A trained prompt token would be seen in all."""
    run = sft_runs.start(**GRADIENT_IS_KEPT, mini_bs=mini_bs)
    module, loss = cross_entropy(sft_runs.settings["ckpt"], demonstrations)
    loss.backward()
    (line,) = sft_runs.metrics()
    assert line["trained_tokens"] == 27
    assert line["loss"] == pytest.approx(loss.item(), abs=1e-5)
    assert line["perplexity"] == pytest.approx(math.exp(loss.item()), rel=1e-5)
    kept = load_file(run / "checkpoints/step_000001/optimizer.safetensors")
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(kept[f"exp_avg.{name}"], parameter.grad, atol=1e-5, rtol=1e-5)
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in module.parameters()])
    assert line["grad_norm"] == pytest.approx(norm.item(), rel=1e-5)


def test_an_update_is_one_optimizer_step_whatever_the_passes(sft_runs: Any) -> None:
    """Adam's step count in the checkpoint says it, as the metrics do."""
    run = sft_runs.start(batch_size=6, mini_bs=1, epochs=3)
    assert [line["optimizer_steps"] for line in sft_runs.metrics()] == [1, 1, 1]
    kept = load_file(run / "checkpoints/step_000003/optimizer.safetensors")
    assert {tensor.item() for name, tensor in kept.items() if name.startswith("step.")} == {3.0}


def test_the_loss_falls_and_the_final_model_writes_what_was_shown(sft_runs: Any, ids: Any) -> None:
    run = sft_runs.start(batch_size=6, epochs=60)
    losses = [line["loss"] for line in sft_runs.metrics()]
    assert losses[-1] < 0.1 < 1.0 < losses[0]
    module = AutoModelForCausalLM.from_pretrained(run / "final")
    prompt = ids("word 3:")
    written = module.generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False, pad_token_id=EOS)
    assert tuple(written[0, len(prompt) :].tolist()) == (*ids("dogs"), EOS)


def test_rows_come_in_the_order_of_the_file_when_shuffling_is_off(sft_runs: Any) -> None:
    """Lengths with the end: 2 3 4 5 | 6 7 2 3 | 4 5 6 7."""
    sft_runs.start(shuffle=False)
    lines = sft_runs.metrics()
    assert [line["trained_tokens"] for line in lines] == [14, 18, 22]
    assert [line["epoch"] for line in lines] == [0, 1, 2]


def test_the_seed_decides_the_order_when_shuffling_is_on(sft_runs: Any) -> None:
    orders = set()
    for seed in range(4):
        sft_runs.start(f"run{seed}", seed=seed, batch_size=1, epochs=1)
        orders.add(tuple(line["trained_tokens"] for line in sft_runs.metrics(f"run{seed}")))
    assert all(sorted(order) == [2, 3, 4, 5, 6, 7] for order in orders)
    assert len(orders) == 4


def test_a_seed_without_shuffling_is_refused_and_not_written_down(sft_runs: Any) -> None:
    with pytest.raises(ConfigError, match="seed is given but shuffle is off"):
        sft_runs.config(shuffle=False, seed=3)
    assert "\nseed = " not in sft_runs.config(shuffle=False).to_toml()
    assert "\nseed = 1\n" in sft_runs.config().to_toml()


def test_the_last_update_takes_what_is_left(sft_runs: Any) -> None:
    """12 rows in fives: 5, 5 and 2."""
    sft_runs.start(batch_size=5, shuffle=False)
    assert [line["trained_tokens"] for line in sft_runs.metrics()] == [20, 7 + 14, 13]


def test_max_steps_ends_the_run_before_the_data_do(sft_runs: Any) -> None:
    sft_runs.start(max_steps=2)
    assert len(sft_runs.metrics()) == 2
    assert "update 2/2" in sft_runs.said


def test_the_column_of_the_solution_is_a_setting(sft_runs: Any, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"prompt": "a", "solution": "long answer", "short": "b"}\n')
    sft_runs.start(solution_key="short", epochs=1)
    assert sft_runs.metrics()[0]["trained_tokens"] == 2


def test_long_demonstrations_are_dropped_and_said(sft_runs: Any) -> None:
    """Prompts of 7 letters, answers of 2 to 7 tokens: 4 of the 6 have at most 12."""
    sft_runs.start(max_tokens=12, epochs=1, batch_size=6)
    assert sft_runs.metrics()[0]["trained_tokens"] == 2 + 3 + 4 + 5
    assert "data.jsonl: dropped 2 demonstrations over max_tokens 12" in sft_runs.said
    assert "(4 demonstrations)" in sft_runs.said


def test_long_prompts_and_repeated_rows_are_dropped_as_in_training(sft_runs: Any, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(
        '{"prompt": "aaaaaaaa", "solution": "b"}\n' + '{"prompt": "a", "solution": "b"}\n' * 2
    )
    sft_runs.start(max_prompt_tokens=7, dedup_prompts=True, epochs=1)
    assert sft_runs.metrics()[0]["trained_tokens"] == 2
    assert "dropped 1 prompt over max_prompt_tokens 7" in sft_runs.said


def test_the_limit_is_the_models_context_if_not_set(sft_runs: Any, tmp_path: Path) -> None:
    """128 tokens: 1 of the prompt, 126 letters and the end fit, 127 letters do not."""
    rows = [{"prompt": "a", "solution": "b" * length} for length in (126, 127)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sft_runs.start(epochs=1)
    assert sft_runs.metrics()[0]["trained_tokens"] == 127
    with pytest.raises(ConfigError, match="max_tokens is 129 but the model is computed rightly up to 128: its context"):
        sft_runs.start("other", max_tokens=129)
    assert not (tmp_path / "other").exists()


def test_a_row_without_a_solution_leaves_no_run_behind(sft_runs: Any, tmp_path: Path) -> None:
    with (tmp_path / "data.jsonl").open("a") as data:
        data.write('{"prompt": "b"}\n')
    with pytest.raises(DataError, match=r"data.jsonl line 7 has no solution"):
        sft_runs.start()
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_that_does_not_belong_to_the_model_is_refused(sft_runs: Any, tmp_path: Path) -> None:
    """The tiny model knows fewer than 100 tokens; `w` is byte 119."""
    shutil.copytree(sft_runs.settings["ckpt"], tmp_path / "mixed")
    byte_tokenizer(128).save_pretrained(tmp_path / "mixed")
    with pytest.raises(ModelError, match=r"the tokenizer makes token \d+ of row 0, but the model knows only"):
        sft_runs.start(ckpt=str(tmp_path / "mixed"))
    assert not (tmp_path / "run").exists()


def test_held_out_loss_is_measured_before_between_and_after(sft_runs: Any, tmp_path: Path, ids: Any) -> None:
    """Against a hand-written cross-entropy of the first and of the final model."""
    (tmp_path / "held_out.jsonl").write_text(
        '{"prompt": "word 9:", "solution": "zebra"}\n{"prompt": "word 8:", "solution": "ox"}\n'
    )
    held_out = [(ids("word 9:"), (*ids("zebra"), EOS)), (ids("word 8:"), (*ids("ox"), EOS))]
    run = sft_runs.start(eval_dataset_path=str(tmp_path / "held_out.jsonl"), eval_interval=2, epochs=4, batch_size=5)
    measured = {line["step"]: line["heldout_loss"] for line in sft_runs.metrics() if "heldout_loss" in line}
    assert list(measured) == [0, 2, 4, 5]
    assert measured[0] == pytest.approx(cross_entropy(sft_runs.settings["ckpt"], held_out)[1].item(), abs=1e-5)
    assert measured[5] == pytest.approx(cross_entropy(str(run / "final"), held_out)[1].item(), abs=1e-5)
    assert "held-out loss" in sft_runs.said


def test_measuring_changes_no_weight_and_keeps_out_of_the_accuracy(sft_runs: Any, tmp_path: Path) -> None:
    plain = sft_runs.start("plain")
    measured = sft_runs.start("measured", eval_dataset_path=str(tmp_path / "data.jsonl"), eval_interval=1)
    weights = "final/model.safetensors"
    assert (plain / weights).read_bytes() == (measured / weights).read_bytes()
    assert not any("heldout_accuracy" in line for line in sft_runs.metrics("measured"))
    assert not any("heldout_loss" in line for line in sft_runs.metrics("plain"))


def test_a_cosine_ends_with_the_data_or_at_max_steps(sft_runs: Any) -> None:
    """lr (1 + cos(pi k / n)) / 2 at update k of n = 3: 1, 3/4, 1/4; of n = 6: 1, 0.933, 3/4."""
    sft_runs.start("data", lr_schedule="cosine", lr=1.0)
    assert [line["lr"] for line in sft_runs.metrics("data")] == pytest.approx([1.0, 0.75, 0.25])
    sft_runs.start("steps", lr_schedule="cosine", lr=1.0, max_steps=6)
    assert [line["lr"] for line in sft_runs.metrics("steps")] == pytest.approx([1.0, 0.9330127, 0.75])


def test_the_trainer_gets_every_training_setting(sft_runs: Any) -> None:
    """3 passes of 2 make the step of 5 rows."""
    chosen = {
        "lr": 0.1,
        "lr_warmup_steps": 2,
        "lr_schedule": "cosine",
        "min_lr": 0.01,
        "adam_beta1": 0.8,
        "adam_beta2": 0.9,
        "weight_decay": 0.5,
        "grad_clip_norm": 2.0,
        "mini_bs": 2,
        "max_tokens_per_pass": 9,
        "max_skipped_updates": 5,
    }
    config = sft_runs.config(batch_size=5, **chosen)
    with assemble(config, PlainDisplay(io.StringIO())) as parts:
        assert parts.trainer.settings == replace(config.training, gradient_accumulation_steps=3)
        assert {name: getattr(config.training, name) for name in chosen} == chosen
        decay = {(group["weight_decay"], *group["betas"]) for group in parts.trainer.optimizer.adamw.param_groups}
        assert decay == {(0.5, 0.8, 0.9)}


def test_the_model_is_loaded_as_the_settings_say(sft_runs: Any) -> None:
    with assemble(sft_runs.config(dtype="bfloat16", activation_checkpointing=True), PlainDisplay(io.StringIO())) as it:
        assert it.model.dtype == torch.bfloat16
        counted = CountedAttention(FamilyAttention([Family(3)], torch.bfloat16, "cpu"))
        it.model.hidden(torch.tensor([5, 9, 7]), counted.position_T, counted).sum().backward()
        assert counted.calls == 4  # both layers, and both again in the backward pass


def test_noise_of_training_mode_is_not_there(sft_runs: Any, family_folder: Any, demonstrations: Any) -> None:
    """OPT drops 0.1 of its states in training mode; the first loss is that of a plain pass in evaluation mode."""
    folder = str(family_folder("OPT"))
    sft_runs.start(ckpt=folder, batch_size=6, max_steps=1)
    assert sft_runs.metrics()[0]["loss"] == pytest.approx(cross_entropy(folder, demonstrations)[1].item(), abs=1e-5)


def test_demonstrations_longer_than_a_window_are_dropped_and_said(sft_runs: Any, family_folder: Any) -> None:
    """Prompts of 7 letters, answers of 2 to 7 tokens: a window of 12 holds the first four."""
    sft_runs.start(ckpt=str(family_folder("Mistral", sliding_window=12)), max_steps=1)
    assert "dropped 2 demonstrations over max_tokens 12" in sft_runs.said
    with pytest.raises(ConfigError, match="max_tokens is 13 but the model is computed rightly up to 12: its sliding"):
        sft_runs.start("other", ckpt=str(family_folder("Mistral", sliding_window=12)), max_steps=1, max_tokens=13)


def test_a_missing_gpu_is_said(sft_runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    sft_runs.start(max_steps=1, train_devices="3")
    assert "train_devices is 3 but there is no GPU here: training on the CPU" in sft_runs.said


def test_checkpoints_come_at_their_interval_and_old_ones_go(sft_runs: Any) -> None:
    run = sft_runs.start(save_interval=2, batch_size=2, keep_checkpoints=2)
    assert [path.name for path in sorted((run / "checkpoints").iterdir())] == ["step_000004", "step_000006"]


def test_old_checkpoints_that_cannot_be_renamed_stay_with_one_warning(
    sft_runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.rename

    def refusing(old: Any, new: Any, **options: Any) -> None:
        if Path(old).name.startswith("step_"):
            raise PermissionError(errno.EACCES, "Permission denied", str(old))
        real(old, new, **options)

    monkeypatch.setattr(os, "rename", refusing)
    run = sft_runs.start(save_interval=1, keep_checkpoints=1, max_steps=3)
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == [f"step_00000{n}" for n in (1, 2, 3)]
    assert sft_runs.said.count("cannot be deleted: Permission denied; the run goes on") == 1
    assert (run / "final/model.safetensors").exists()


def test_a_step_that_is_not_finite_is_skipped_and_three_end_the_run(sft_runs: Any) -> None:
    with assemble(sft_runs.config(batch_size=2), PlainDisplay(io.StringIO())) as parts:
        with torch.no_grad():
            parts.model.module.model.norm.weight.fill_(math.nan)
        stream = io.StringIO()
        with pytest.raises(TrainingError, match="3 optimizer steps in a row were not finite"):
            SftRun(parts, PlainDisplay(stream), StopRequest()).train()
    lines = sft_runs.metrics()
    assert [(line["loss"], line["perplexity"], line["skipped_updates"]) for line in lines] == [
        (None, None, 1),
        (None, None, 2),
    ]
    assert "update 1 is skipped: loss nan" in stream.getvalue()


def test_skipped_steps_are_counted_over_a_resume(sft_runs: Any) -> None:
    """The gradient overflows in update 1 alone; 12 rows in fours are 3 updates, and 6 more in fours another 2."""

    class Mending(PlainDisplay):
        def step_done(self, step: int, metrics: Any) -> None:
            hook.remove()

    with assemble(sft_runs.config(), Mending(io.StringIO())) as parts:
        weight = parts.model.module.model.norm.weight
        hook = weight.register_hook(lambda gradient: gradient * math.inf)
        SftRun(parts, Mending(io.StringIO()), StopRequest()).train()
    sft_runs.resume(epochs=3)
    assert [line["skipped_updates"] for line in sft_runs.metrics()] == [1] * 5
    assert [line["optimizer_steps"] for line in sft_runs.metrics()] == [0, 1, 1, 1, 1]


def test_mean_loss_weighs_every_token_alike_and_reports_its_progress(sft_runs: Any, demonstrations: Any) -> None:
    """In passes of 9 tokens at most, so each demonstration alone; the mean of means would be another number."""
    seen = []
    config = sft_runs.config(max_tokens_per_pass=9, eval_dataset_path=sft_runs.settings["dataset_path"])
    with assemble(config, PlainDisplay(io.StringIO())) as parts:
        loss = mean_loss(parts.trainer, parts.held_out, lambda done, total: seen.append((done, total)))
    assert loss == pytest.approx(cross_entropy(sft_runs.settings["ckpt"], demonstrations)[1].item(), abs=1e-5)
    assert seen == [(number, 6) for number in range(7)]
