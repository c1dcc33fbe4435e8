"""AdamW on float32 master weights."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from dapo.training.ranks import Ranks
from dapo.training.settings import TrainingSettings


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
        """Clip by the global norm, update, and write the masters back. Returns the norm before clipping."""
        for master in self.masters:
            if master.grad is None:
                master.grad = torch.zeros_like(master)
            ranks.sum(master.grad)
        norm = nn.utils.clip_grad_norm_(self.masters, self.grad_clip_norm)
        for group in self.adamw.param_groups:
            group["lr"] = lr
        self.adamw.step()
        self.drop_gradients()
        self._write_back()
        return norm.item()

    def drop_gradients(self) -> None:
        self.adamw.zero_grad(set_to_none=True)

    @torch.no_grad()
    def _write_back(self) -> None:
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            if master is not parameter:
                parameter.copy_(master)
