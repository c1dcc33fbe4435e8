"""The processes that train together, or the one that trains alone: the update never asks which it is."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


class Ranks:
    """Data parallelism over a torch.distributed group; without one, a single rank."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self._group = group
        self.rank = 0 if group is None else dist.get_rank(group)
        self.size = 1 if group is None else dist.get_world_size(group)
        on_gpu = group is not None and dist.get_backend(group) == "nccl"
        self.device = torch.device("cuda" if on_gpu else "cpu")
        """Where the ranks exchange tensors: NCCL knows those of a GPU alone."""

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up over the ranks, in place. Every rank must call it, one with nothing to add passes zeros."""
        if self._group is not None:
            there = tensor.to(self.device)
            dist.all_reduce(there, group=self._group)
            if there is not tensor:
                tensor.copy_(there)
        return tensor

    def sums(self, values: Sequence[float]) -> list[float]:
        """Numbers added up over the ranks, in float64."""
        return self.sum(torch.tensor(list(values), dtype=torch.float64)).tolist()
