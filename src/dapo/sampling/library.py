"""Dynamic sampling for people who have their own loop: submit scored groups, pop full batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dapo.algorithms.advantages import compute_group_advantages
from dapo.algorithms.group_filters import Verdict, judge
from dapo.sampling.group_buffer import GroupBuffer


@dataclass(frozen=True)
class SubmittedGroup:
    """A group as it was handed in."""

    prompt_id: Any
    group_correctness: tuple[bool, ...]
    responses: tuple[Any, ...]
    rewards: tuple[float, ...]
    token_lengths: tuple[int, ...]

    @property
    def advantages(self) -> tuple[float, ...]:
        """Group advantages of the rewards (DAPO eq. 9)."""
        return tuple(compute_group_advantages(torch.tensor(self.rewards, dtype=torch.float64)).tolist())


class DAPODynamicSampler:
    """Keeps the groups with 0 < correct < G until there are enough for a batch (DAPO eq. 11).

    Groups beyond a batch stay for the next one, oldest first.
    """

    def __init__(self, target_batch_size: int = 8, group_size: int = 8) -> None:
        """target_batch_size: groups of a batch. group_size: answers of a group."""
        if target_batch_size < 1:
            raise ValueError(f"target_batch_size must be at least 1, got {target_batch_size}")
        if group_size < 2:
            raise ValueError(f"group_size must be at least 2 so that a group can disagree, got {group_size}")
        self.target_batch_size = target_batch_size
        self.group_size = group_size
        self._buffer: GroupBuffer[SubmittedGroup] = GroupBuffer()
        self._judged: Counter[Verdict] = Counter()

    def submit_group(
        self,
        prompt_id: Any,
        group_correctness: Sequence[bool],
        responses: Sequence[Any],
        rewards: Sequence[float],
        token_lengths: Sequence[int],
    ) -> bool:
        """Hand in the `group_size` answers to one prompt; True if the group is kept.

        Raises ValueError when one of the four sequences has another length.
        """
        group = SubmittedGroup(
            prompt_id,
            tuple(bool(flag) for flag in group_correctness),
            tuple(responses),
            tuple(rewards),
            tuple(token_lengths),
        )
        for name in ("group_correctness", "responses", "rewards", "token_lengths"):
            if len(getattr(group, name)) != self.group_size:
                raise ValueError(
                    f"{name} of prompt {prompt_id!r} has {len(getattr(group, name))} entries, "
                    f"group_size is {self.group_size}"
                )
        verdict = judge([float(flag) for flag in group.group_correctness])
        self._judged[verdict] += 1
        if verdict == "informative":
            self._buffer.keep(group)
        return verdict == "informative"

    def is_ready(self) -> bool:
        """Whether a whole batch waits."""
        return len(self._buffer) >= self.target_batch_size

    def pop_batch(self) -> list[SubmittedGroup]:
        """Take out the oldest `target_batch_size` groups. Raises RuntimeError while there are fewer."""
        if not self.is_ready():
            raise RuntimeError(
                f"only {len(self._buffer)} of {self.target_batch_size} groups are there: "
                "submit more until is_ready() is true"
            )
        return self._buffer.take(self.target_batch_size)

    def statistics(self) -> dict[str, float]:
        """Counts over the sampler's whole life; `effective_gradient_rate` is accepted over submitted groups."""
        submitted = self._judged.total()
        return {
            "buffered_groups": len(self._buffer),
            "rejected_all_correct": self._judged["all_correct"],
            "rejected_all_incorrect": self._judged["all_wrong"],
            "effective_gradient_rate": self._judged["informative"] / submitted if submitted else 0.0,
        }
