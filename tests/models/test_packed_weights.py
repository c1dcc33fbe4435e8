"""Packed weights: the same products from a copy that is laid out once."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dapo.models.packed_weights import PackedWeights

needs_packing = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")


def layer(dtype: torch.dtype = torch.float32, *, bias: bool = False) -> nn.Linear:
    """Sums of two neighbours: row r of the weight has ones at r and r + 1, so that all products are done by head."""
    made = nn.Linear(4, 3, bias=bias)
    made.weight.data = torch.tensor([[1.0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]])
    if bias:
        made.bias.data = torch.tensor([10.0, 20, 30])
    return made.to(dtype)


STATES = torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8]])
SUMS = [[3.0, 5, 7], [11, 13, 15]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_a_packed_layer_computes_what_the_layer_does(dtype: torch.dtype) -> None:
    one = layer(dtype)
    with PackedWeights(one, rows=2):
        assert one(STATES.to(dtype)).tolist() == SUMS
        assert one(STATES.to(dtype)[None]).tolist() == [SUMS]  # the model's states have a batch in front
        assert one(STATES.to(dtype)).dtype == dtype


@torch.no_grad()
def test_a_bias_is_added() -> None:
    one = layer(bias=True)
    with PackedWeights(one, rows=2):
        assert one(STATES).tolist() == [[13, 25, 37], [21, 33, 45]]


@needs_packing
@torch.no_grad()
def test_the_copy_is_made_once_and_used_only_inside() -> None:
    one = layer()
    packed = PackedWeights(one, rows=2)
    one.weight.data.mul_(2)
    with packed:
        assert one(STATES).tolist() == SUMS  # the weights as they were when they were packed
    assert one(STATES).tolist() == [[6, 10, 14], [22, 26, 30]]
    with PackedWeights(one, rows=2):
        assert one(STATES).tolist() == [[6, 10, 14], [22, 26, 30]]


def test_after_a_failure_inside_the_layer_is_itself_again_and_learns() -> None:
    one = layer()
    with pytest.raises(RuntimeError, match="inside"), torch.no_grad(), PackedWeights(one, rows=2):
        raise RuntimeError("inside")
    one(STATES).sum().backward()
    assert one.weight.grad is not None
    assert one.weight.grad.tolist() == [[6, 8, 10, 12]] * 3  # each column's sum of the states


def test_a_layer_of_another_kind_stays_as_it_is() -> None:
    class Doubled(nn.Linear):
        def forward(self, states: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(states)

    one = Doubled(4, 3, bias=False)
    one.weight.data = layer().weight.data
    with torch.no_grad(), PackedWeights(nn.Sequential(one), rows=2):
        assert one(STATES).tolist() == [[6, 10, 14], [22, 26, 30]]
