"""The optimizer goes on as if it had never been put away."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from dapo.errors import CheckpointError
from dapo.training.optimizer import MasterAdamW
from dapo.training.ranks import Ranks
from dapo.training.settings import TrainingSettings


def module(dtype: torch.dtype) -> nn.Linear:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Linear(3, 2).to(dtype)


def step(layer: nn.Linear, optimizer: MasterAdamW) -> None:
    layer(torch.ones(1, 3, dtype=layer.weight.dtype)).pow(2).sum().backward()
    optimizer.collect()
    optimizer.step(1e-3, Ranks())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_two_steps_and_two_after_a_restart_equal_four(dtype: torch.dtype) -> None:
    names = ["weight", "bias"]
    unbroken = module(dtype)
    optimizer = MasterAdamW(unbroken.parameters(), TrainingSettings())
    for _ in range(2):
        step(unbroken, optimizer)
    weights = {name: value.clone() for name, value in unbroken.state_dict().items()}
    kept = {name: tensor.clone() for name, tensor in optimizer.state(names).items()}
    resumed = module(dtype)
    resumed.load_state_dict(weights)
    restored = MasterAdamW(resumed.parameters(), TrainingSettings())
    restored.load_state(names, kept)
    for _ in range(2):
        step(unbroken, optimizer)
        step(resumed, restored)
    for name, tensor in optimizer.state(names).items():
        assert torch.equal(tensor, restored.state(names)[name])
    assert torch.equal(unbroken.weight, resumed.weight)
    assert kept["step.weight"].item() == 2


def test_masters_are_kept_for_parameters_of_fewer_bits_only() -> None:
    names = ["weight", "bias"]
    full = MasterAdamW(module(torch.float32).parameters(), TrainingSettings()).state(names)
    half = MasterAdamW(module(torch.bfloat16).parameters(), TrainingSettings()).state(names)
    assert full == {}
    assert {name: tensor.dtype for name, tensor in half.items()} == {
        "master.weight": torch.float32,
        "master.bias": torch.float32,
    }


def test_tensors_of_another_model_are_refused() -> None:
    layer = module(torch.float32)
    optimizer = MasterAdamW(layer.parameters(), TrainingSettings())
    with pytest.raises(CheckpointError, match=r"exp_avg of weight has shape \(5,\), the parameter \(2, 3\)"):
        optimizer.load_state(["weight", "bias"], {"exp_avg.weight": torch.zeros(5)})


def test_a_gradient_that_is_not_finite_leaves_weights_and_moments_alone() -> None:
    layer = module(torch.float32)
    optimizer = MasterAdamW(layer.parameters(), TrainingSettings())
    step(layer, optimizer)
    before = {name: tensor.clone() for name, tensor in optimizer.state(["weight", "bias"]).items()}
    weight = layer.weight.clone()
    layer.weight.grad = torch.full((2, 3), float("nan"))
    assert not torch.tensor(optimizer.step(1e-3, Ranks())).isfinite()
    assert torch.equal(layer.weight, weight)
    assert all(torch.equal(before[name], now) for name, now in optimizer.state(["weight", "bias"]).items())
    assert layer.weight.grad is None


def test_loaded_parameters_do_not_lie_in_their_file(load_tiny: Callable[..., object]) -> None:
    """torch aligns its own memory to 64 bytes; a mapped file's tensors lie wherever its header ends."""
    model = load_tiny()
    assert all(parameter.data_ptr() % 64 == 0 for parameter in model.module.parameters())  # type: ignore[attr-defined]
