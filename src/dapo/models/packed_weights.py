"""Weights laid out as the CPU's matrix products want them, for as long as they stay the same.

A product that is given a weight as the model stores it lays it out anew each time. With few rows, as in writing
answers token by token, that costs as much as the product itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType

import torch
from torch import Tensor, nn


class PackedWeights:
    """While it is entered, the linear layers of a module compute without gradients from a packed copy of their
    weights. The copy is made once, here: make a new one after each change of the weights."""

    def __init__(self, module: nn.Module, rows: int) -> None:
        """rows: about how many rows the products will have."""
        layers = [part for part in module.modules() if type(part) is nn.Linear and _can_be_packed(part.weight)]
        self._layers = [(layer, _packed(layer, rows)) for layer in layers]

    def __enter__(self) -> None:
        for layer, product in self._layers:
            vars(layer)["forward"] = product  # a module's own way to set an attribute is slow, and this is every token

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for layer, _ in self._layers:
            del vars(layer)["forward"]


def _can_be_packed(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    return weight.dtype == torch.float32 or (
        weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


@torch.no_grad()
def _packed(layer: nn.Linear, rows: int) -> Callable[[Tensor], Tensor]:
    weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), rows)
    return functools.partial(_product, weight, layer.bias)


def _product(weight: Tensor, bias: Tensor | None, states: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")
