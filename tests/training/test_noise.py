"""Models that add noise in training mode learn from what they wrote, without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dapo.models.language_model import LanguageModel
from dapo.records import Draw
from dapo.rollout.engine import answer_all
from dapo.rollout.settings import Sampling
from dapo.rollout.torch_engine import TorchEngine
from dapo.training.batch import Answer

NOISY: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing": ("Llama", {}),
    "dropout and layer drop by functions": ("OPT", {"dropout": 0.1, "layerdrop": 0.3}),
    "dropout of residuals and embeddings": ("Starcoder2", {"residual_dropout": 0.3, "embedding_dropout": 0.3}),
    "dropout as modules": ("Phi", {"resid_pdrop": 0.3, "embd_pdrop": 0.3}),
    "dropout of attention": ("Qwen2", {"attention_dropout": 0.3}),
    "router jitter": ("Mixtral", {"router_jitter_noise": 0.3}),
    "router jitter of inputs": ("Phimoe", {"router_jitter_noise": 0.3, "input_jitter_noise": 0.3}),
}


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "computed again"])
@pytest.mark.parametrize("noise", NOISY)
def test_the_first_step_sees_the_log_probabilities_that_the_engine_recorded(
    family_folder: Callable[..., Path],
    load_checkpoint: Callable[..., LanguageModel],
    make_trainer: Callable[..., Any],
    ids: Callable[[str], tuple[int, ...]],
    draw: Callable[..., Draw],
    noise: str,
    checkpointing: bool,
) -> None:
    """The largest gap over all tokens is rounding: a dropout of 0.1 alone makes it 0.1."""
    family, settings = NOISY[noise]
    model = load_checkpoint(family_folder(family, **settings), activation_checkpointing=checkpointing)
    engine = TorchEngine(model, max_num_seqs=8, kv_cache_gb=0.1)
    draws = [draw(number, text) for number, text in enumerate(("ab", "cde"))]
    rollouts = [each for each in answer_all(engine, draws, Sampling(n=4, max_new_tokens=12), seed=1) if each]
    answers = [
        Answer(each.draw.id, each.draw.prompt, completion, advantage)
        for each in rollouts
        for completion, advantage in zip(each.completions, (1.0, -1.0, 0.5, -0.5), strict=True)
    ]
    stats = make_trainer(model, mini_bs=8).update(answers, 1e-3)
    written = [logprob for answer in answers for logprob in answer.completion.logprobs]
    trained = [logprob for tokens in stats.trained for logprob in tokens.logprobs]
    assert max(abs(one - other) for one, other in zip(written, trained, strict=True)) < 1e-5
    assert stats.grad_norm > 0


@pytest.mark.parametrize("noise", ["dropout and layer drop by functions", "router jitter"])
def test_two_updates_from_other_random_states_are_the_same(
    family_folder: Callable[..., Path],
    load_checkpoint: Callable[..., LanguageModel],
    make_trainer: Callable[..., Any],
    batch: list[Answer],
    noise: str,
) -> None:
    import torch

    family, settings = NOISY[noise]
    folder = family_folder(family, **settings)
    norms = []
    for seed in (1, 2):
        model = load_checkpoint(folder)
        torch.manual_seed(seed)
        norms.append(make_trainer(model, mini_bs=6).update(batch, 1e-3).grad_norm)
    assert norms[0] == norms[1]
