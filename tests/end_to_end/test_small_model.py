"""The bundled model, which people begin with: real weights, real tokenizer. Minutes, hence marked slow."""

from __future__ import annotations

import io
import json
import math

import pytest
import torch
from transformers import AutoModelForCausalLM

from dapo.config import load_config
from dapo.coordination.run import train
from dapo.models.loading import load_model, load_tokenizer, locate
from dapo.models.settings import ModelSettings
from dapo.records import Draw, Prompt
from dapo.rollout.engine import answer_all
from dapo.rollout.settings import Sampling
from dapo.rollout.torch_engine import TorchEngine
from dapo.tracking.plain_display import PlainDisplay

NAME = "smollm2-135m"
TEMPERATURE = 0.8
TEXTS = ("What is 3+4? Reply with only the number.", "Name three colors.")


def load(dtype):
    settings = ModelSettings(ckpt=NAME, dtype=dtype)
    location = locate(settings)
    return load_model(location, load_tokenizer(location, settings), settings, torch.device("cpu"))


def write_answers(model):
    """Two answers to each text, as (prompt ids, answer ids, recorded log-probabilities)."""
    draws = []
    for number, text in enumerate(TEXTS):
        chat = [{"role": "user", "content": text}]
        ids = model.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        draws.append(Draw(number, Prompt(number, text, tuple(ids))))
    engine = TorchEngine(model, max_num_seqs=3, kv_cache_gb=1.0)
    sampling = Sampling(n=2, max_new_tokens=24, temperature=TEMPERATURE)
    rollouts = [rollout for rollout in answer_all(engine, draws, sampling, 0) if rollout is not None]
    return [(one.draw.prompt.tokens, answer.tokens, answer.logprobs) for one in rollouts for answer in one.completions]


def fresh(model, fresh_logprobs, answers):
    with torch.no_grad():
        return torch.cat([fresh_logprobs(model, prompt, tokens, TEMPERATURE) for prompt, tokens, _ in answers])


@pytest.mark.slow
def test_float32_logprobs_of_real_answers_are_those_of_a_fresh_forward_pass(fresh_logprobs):
    """To 1e-3 through 30 layers."""
    model = load("float32")
    answers = write_answers(model)
    recorded = torch.tensor([value for *_, logprobs in answers for value in logprobs])
    assert len(answers) == 4
    torch.testing.assert_close(recorded, fresh(model, fresh_logprobs, answers), atol=1e-3, rtol=0)


@pytest.mark.slow
def test_bfloat16_logprobs_of_real_answers_are_as_near_the_exact_ones_as_a_plain_bfloat16_pass(fresh_logprobs):
    """Two bfloat16 passes differ from each other by what each differs from float32 on the same weights.

    Hence the measure: the engine's error against float32 is no larger than a plain pass's, and has no bias.
    """
    model = load("bfloat16")
    answers = write_answers(model)
    recorded = torch.tensor([value for *_, logprobs in answers for value in logprobs])
    exact = fresh(load("float32"), fresh_logprobs, answers)
    ours, plain = recorded - exact, fresh(model, fresh_logprobs, answers) - exact
    assert ours.square().mean().sqrt() < 1.5 * plain.square().mean().sqrt()
    assert ours.mean().abs() < 3 * ours.std() / len(ours) ** 0.5  # three deviations of a mean of so many


@pytest.mark.slow
def test_two_updates_on_arithmetic(tmp_path):
    flags = {
        "ckpt": NAME,
        "dataset_path": "task:arithmetic?digits=1&operations=+&split=train",
        "reward": "exact_number",
        "save_path": str(tmp_path / "run"),
        "train_devices": "cpu",
        "n_samples": 4,
        "max_new_tokens": 12,
        "batch_size": 2,
        "max_steps": 2,
        "lr": 1e-5,
    }
    with PlainDisplay(io.StringIO()) as display:
        folder = train(load_config(None, flags), display)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        assert math.isfinite(line["loss"])
        assert line["grad_norm"] > 0
        assert line["ratio_mean"] == pytest.approx(1.0, abs=1e-3)  # one optimizer step an update
    AutoModelForCausalLM.from_pretrained(folder / "final")
