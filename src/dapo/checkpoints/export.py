"""A checkpoint's model as a plain Hugging Face folder, in the type that a person wants."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from dapo.checkpoints.store import Checkpoint
from dapo.checkpoints.whole_folder import unused, written_whole

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
MASTER = "master."
"""Begins the names of float32 masters among an optimizer's tensors."""


def export_model(checkpoint: Checkpoint, out: Path, dtype: str | None = None) -> None:
    """Write weights, config, generation config, tokenizer and template of `checkpoint` to the new folder `out`.

    dtype: `float32` or `bfloat16`; None keeps what was trained. Every floating tensor is converted, to float32
    from the masters where the checkpoint has them, and the config says the same; other tensors stay.
    Raises ConfigError when `out` holds something, DapoError when it cannot be written.
    """
    with written_whole(unused(out, "--out")) as aside:
        shutil.copytree(checkpoint.model, aside, dirs_exist_ok=True)
        if dtype is not None:
            _convert(aside, dtype, checkpoint)


def _convert(folder: Path, dtype: str, checkpoint: Checkpoint) -> None:
    from safetensors.torch import load_file, save_file

    masters = {}
    if dtype == "float32":
        optimizer = checkpoint.optimizer()
        masters = {name.removeprefix(MASTER): kept for name, kept in optimizer.items() if name.startswith(MASTER)}
    for shard in folder.glob("*.safetensors"):
        tensors = {name: masters.get(name, tensor) for name, tensor in load_file(shard).items()}
        save_file(
            {
                name: tensor.to(DTYPES[dtype]) if tensor.is_floating_point() else tensor
                for name, tensor in tensors.items()
            },
            shard,
            metadata={"format": "pt"},
        )
    config = folder / "config.json"
    settings = _with_dtype(json.loads(config.read_text(encoding="utf-8")), dtype)
    config.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _with_dtype(value: Any, dtype: str) -> Any:
    """The config with every mention of the weights' type changed; configs of several parts mention it in each."""
    if isinstance(value, dict):
        return {
            key: dtype if key in ("dtype", "torch_dtype") and isinstance(inner, str) else _with_dtype(inner, dtype)
            for key, inner in value.items()
        }
    return [_with_dtype(inner, dtype) for inner in value] if isinstance(value, list) else value
