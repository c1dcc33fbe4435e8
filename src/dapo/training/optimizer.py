"""AdamW on float32 master weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from dapo.errors import CheckpointError
from dapo.training.ranks import Ranks
from dapo.training.settings import TrainingSettings

NORM_BLOCK = 1024
"""Squares added up in float32 at a time; over 28 million of them its sum is off by 0.2 %."""


class MasterAdamW:
    """Keeps a float32 copy of every parameter that is held in fewer bits; float32 ones are their own master.

    Gradients are added up in float32 over the passes of a step. Updates far smaller than a bfloat16 step thus
    add up instead of being rounded away.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], settings: TrainingSettings) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.masters = [
            parameter if parameter.dtype == torch.float32 else parameter.detach().float().requires_grad_()
            for parameter in self.parameters
        ]
        self.grad_clip_norm = settings.grad_clip_norm
        self.adamw = torch.optim.AdamW(
            self.masters,
            lr=settings.lr,
            betas=(settings.adam_beta1, settings.adam_beta2),
            weight_decay=settings.weight_decay,
            fused=True,
        )

    def collect(self) -> None:
        """Move the gradients of a finished backward pass to the masters."""
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            if master is parameter or parameter.grad is None:
                continue
            gradient = parameter.grad.float()
            master.grad = gradient if master.grad is None else master.grad.add_(gradient)
            parameter.grad = None

    def step(self, lr: float, ranks: Ranks) -> float:
        """Clip by the global norm, update, and write the masters back. Returns the norm before clipping.

        A norm that is not finite changes nothing: weights and moments stay as they were.
        """
        for master in self.masters:
            if master.grad is None:
                master.grad = torch.zeros_like(master)
            ranks.sum(master.grad)
        gradients = [master.grad for master in self.masters if master.grad is not None]
        norm = global_norm(gradients)
        if math.isfinite(norm):
            if norm > self.grad_clip_norm:
                torch._foreach_mul_(gradients, self.grad_clip_norm / norm)
            for group in self.adamw.param_groups:
                group["lr"] = lr
            self.adamw.step()
            self._write_back()
        self.drop_gradients()
        return norm

    def drop_gradients(self) -> None:
        self.adamw.zero_grad(set_to_none=True)

    def state(self, names: Sequence[str]) -> dict[str, Tensor]:
        """Moments, step counts and masters by parameter name; `names` are those of the parameters, in their order.

        Parameters that no step has changed yet have no moments, and float32 ones no master besides themselves.
        """
        tensors: dict[str, Tensor] = {}
        for name, parameter, master in zip(names, self.parameters, self.masters, strict=True):
            tensors |= {f"{kind}.{name}": value for kind, value in self.adamw.state[master].items()}
            if master is not parameter:
                tensors[f"master.{name}"] = master.detach()
        return tensors

    @torch.no_grad()
    def load_state(self, names: Sequence[str], tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `state` returned. Raises CheckpointError when a parameter's tensors do not fit it."""
        for name, parameter, master in zip(names, self.parameters, self.masters, strict=True):
            kept = {kind: tensors.get(f"{kind}.{name}") for kind in ("step", "exp_avg", "exp_avg_sq", "master")}
            for kind, tensor in kept.items():
                if tensor is not None and kind != "step" and tensor.shape != parameter.shape:
                    raise CheckpointError(
                        f"the optimizer's {kind} of {name} has shape {tuple(tensor.shape)}, "
                        f"the parameter {tuple(parameter.shape)}",
                        fix="resume with the model of the run",
                    )
            if kept["master"] is not None and master is not parameter:
                master.copy_(kept["master"])
            # Fresh copies, since a file's tensors lie where its header ends, and where they lie can decide rounding.
            moments = {
                kind: tensor.to(parameter.device, copy=True)
                for kind, tensor in kept.items()
                if tensor is not None and kind != "master"
            }
            if moments:
                self.adamw.state[master] = moments
        self._write_back()

    @torch.no_grad()
    def _write_back(self) -> None:
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            if master is not parameter:
                parameter.copy_(master)


@torch.no_grad()
def global_norm(tensors: Sequence[Tensor]) -> float:
    """The root of the sum of all squares, to float64's precision at the speed of float32."""
    total = torch.stack([_sum_of_squares(tensor.flatten()) for tensor in tensors]).sum()
    return total.sqrt().item()


def _sum_of_squares(flat: Tensor) -> Tensor:
    whole = len(flat) // NORM_BLOCK * NORM_BLOCK
    blocks = torch.linalg.vector_norm(flat[:whole].view(-1, NORM_BLOCK), dim=1)
    rest = torch.linalg.vector_norm(flat[whole:])
    return torch.cat([blocks, rest[None]]).double().square().sum()
