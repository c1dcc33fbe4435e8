"""What training writes into a checkpoint, and how it is found there again.

model/                   Hugging Face folder: weights, config, tokenizer, template
optimizer.safetensors    moments, step counts and float32 masters, by parameter name
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from dapo.errors import CheckpointError
from dapo.models.language_model import LanguageModel
from dapo.models.loading import save_model
from dapo.wording import first_line

MODEL = "model"
OPTIMIZER = "optimizer.safetensors"


def write_trained(folder: Path, model: LanguageModel, optimizer: Mapping[str, Tensor]) -> None:
    """Write both into `folder`, the optimizer first."""
    from safetensors.torch import save_file

    save_file({name: tensor.contiguous() for name, tensor in optimizer.items()}, folder / OPTIMIZER)
    save_model(model, folder / MODEL)


def read_optimizer(folder: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint's optimizer. Raises CheckpointError when they cannot be read."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = folder / OPTIMIZER
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{file} cannot be read: {first_line(error)}", fix="restore it from a copy, or remove this checkpoint"
        ) from error
