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
from dapo.rollout.settings import Sampling
from dapo.rollout.torch_engine import TorchEngine
from dapo.tracking.plain_display import PlainDisplay

NAME = "smollm2-135m"
TEXTS = ("What is 3+4? Reply with only the number.", "Name three colors.")


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-3), ("bfloat16", 0.25)])
def test_logprobs_of_real_answers_are_those_of_a_fresh_forward_pass(dtype, tolerance):
    """float32 to 1e-3 through 30 layers; bfloat16 within its noise, and without a bias of its mean above 0.02."""
    settings = ModelSettings(ckpt=NAME, dtype=dtype)
    location = locate(settings)
    model = load_model(location, load_tokenizer(location, settings), settings, torch.device("cpu"))
    draws = []
    for number, text in enumerate(TEXTS):
        chat = [{"role": "user", "content": text}]
        ids = model.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        draws.append(Draw(number, Prompt(number, text, tuple(ids))))
    engine = TorchEngine(model, max_num_seqs=3, kv_cache_gb=1.0)
    sampling = Sampling(n=2, max_new_tokens=24, temperature=0.8)
    rollouts = [rollout for rollout in engine.rollout(draws, sampling, 0) if rollout is not None]
    model.module.set_attn_implementation("eager")
    gaps = []
    for rollout in rollouts:
        prompt = rollout.draw.prompt.tokens
        for completion in rollout.completions:
            row = torch.tensor([[*prompt, *completion.tokens]])
            with torch.no_grad():
                logits = model.module(input_ids=row, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
            fresh = (logits / 0.8).log_softmax(-1).gather(-1, row[0, len(prompt) :, None])[:, 0]
            gaps.append(torch.tensor(completion.logprobs) - fresh)
    gap = torch.cat(gaps)
    assert len(rollouts) == 2
    assert gap.abs().max() < tolerance
    assert abs(gap.mean()) < 0.02


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
