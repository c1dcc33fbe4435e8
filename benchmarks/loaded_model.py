"""The model that the comparisons run, its prompts, and its matrix products alone: the limit of what could be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from dapo.data.prompts import encode_prompts
from dapo.data.settings import DataSettings
from dapo.data.sources import load_rows
from dapo.models.language_model import LanguageModel
from dapo.models.loading import load_model, load_tokenizer, locate
from dapo.models.settings import ModelSettings
from dapo.records import Prompt

QUICKSTART = Path(__file__).parents[1] / "recipes" / "quickstart.toml"
_BUNDLED = ModelSettings(ckpt="smollm2-135m")


def bundled() -> str:
    """The folder of SmolLM2-135M."""
    return locate(_BUNDLED)


def load(folder: str, dtype: Literal["float32", "bfloat16"]) -> LanguageModel:
    """A model as a run loads it, on the CPU."""
    settings = ModelSettings(ckpt=folder, dtype=dtype)
    return load_model(folder, load_tokenizer(folder, settings), settings, torch.device("cpu"))


def arithmetic_task(rows: int, split: str = "train") -> str:
    """The `dataset_path` of so many problems of one-digit addition."""
    return f"task:arithmetic?digits=1&operations=+&split={split}&rows={rows}"


def arithmetic_prompts(rows: int, split: str = "train") -> Sequence[Prompt]:
    """Those problems, with the model's chat template around them."""
    data = DataSettings(dataset_path=arithmetic_task(rows, split))
    return encode_prompts(load_rows(data), data, load_tokenizer(bundled(), _BUNDLED)).prompts


def problems_of(prompts: Sequence[Prompt]) -> list[dict[str, Any]]:
    """The prompts as rows for a peer: chat messages under `prompt`, and `answer`."""
    return [{"prompt": [dict(message) for message in row.messages], "answer": row.answer} for row in prompts]


def forward_products(model: LanguageModel, tokens: int, scored: int) -> Callable[[], None]:
    """The matrix products alone of a forward pass over `tokens` tokens, of which `scored` go through the head."""
    head = model.module.get_output_embeddings()
    layers = [part for part in model.module.modules() if isinstance(part, torch.nn.Linear) and part is not head]
    inputs = {width: torch.randn(tokens, width, dtype=model.dtype) for width in {layer.in_features for layer in layers}}
    last = torch.randn(scored, model.head.shape[1], dtype=model.dtype)

    @torch.no_grad()
    def run() -> None:
        for layer in layers:
            torch.nn.functional.linear(inputs[layer.in_features], layer.weight)
        torch.nn.functional.linear(last, model.head)

    run()
    return run
