"""Activation checkpointing in evaluation mode, the only one in which a model is run here.

`transformers` has a switch of its own, which acts in training mode alone, where a model may add noise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dapo.errors import ModelError


def checkpoint_layers(module: nn.Module) -> None:
    """Let each decoder layer keep its inputs alone for the backward pass, which computes the rest again.

    Passes without gradients are left as they are. Raises ModelError for a model that names no such layers.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [part for part in module.modules() if isinstance(part, GradientCheckpointingLayer)]
    if not layers:
        raise ModelError(
            f"activation_checkpointing is on but {type(module).__name__} names no layers to compute again",
            fix="leave activation_checkpointing out, or use a model that transformers itself brings",
        )
    for layer in layers:
        vars(layer)["forward"] = _checkpointed(layer.forward)


def _checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    return run
