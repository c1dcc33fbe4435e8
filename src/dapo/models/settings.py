"""Which model, from where, and how it is held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dapo.errors import ConfigError

Dtype = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class ModelSettings:
    """The model to train."""

    ckpt: str | None = None
    """The model: a local folder, a run's folder (RUN, RUN@step_40), a hub id, or `smollm2-135m` (bundled, no hub)."""
    model_hub: Literal["hf", "modelscope"] = "hf"
    """Where a hub id is looked up."""
    dtype: Dtype = "auto"
    """`auto`: float32 on a CPU, bfloat16 on a GPU. `float32` computes in float32 throughout."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model."""
    attn_backend: Literal["native"] = "native"
    """Attention: `native`, the packed attention of this package."""
    activation_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""

    def __post_init__(self) -> None:
        if not self.ckpt:
            raise ConfigError("ckpt is not set", fix="name a model: --ckpt smollm2-135m, a folder, or a hub id")
