"""From collected groups to the answers that are trained: overlong shaping, then group advantages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from dapo.algorithms.advantages import compute_group_advantages
from dapo.algorithms.reward_shaping import soft_overlong_punishment
from dapo.algorithms.settings import Algorithm
from dapo.records import AnswerLimit, Completion, Group, Prompt

T = TypeVar("T")


@dataclass(frozen=True)
class JudgedGroup:
    """A group with what its answers are trained by; one entry per answer."""

    group: Group
    penalties: tuple[float, ...]
    """Soft overlong penalty, 0 or below."""
    advantages: tuple[float, ...]

    @property
    def shaped_rewards(self) -> list[float]:
        return [reward + penalty for reward, penalty in zip(self.group.rewards, self.penalties, strict=True)]


@dataclass(frozen=True)
class Answer:
    """One answer on its way into a pass."""

    group_id: int
    prompt: Prompt
    completion: Completion
    advantage: float


def judge_groups(groups: Sequence[Group], algorithm: Algorithm, limit: AnswerLimit) -> list[JudgedGroup]:
    """Add the overlong penalty to the raw rewards, then compare within each group."""
    penalties = [_penalties(group, algorithm, limit) for group in groups]
    rewards_PG = torch.tensor([group.rewards for group in groups], dtype=torch.float64)
    advantages_PG = compute_group_advantages(
        rewards_PG + torch.tensor(penalties, dtype=torch.float64),
        algorithm.adv_eps,
        correction=algorithm.adv_correction,
        scale=algorithm.scale_advantages,
    )
    return [
        JudgedGroup(group, tuple(penalty), tuple(advantages))
        for group, penalty, advantages in zip(groups, penalties, advantages_PG.tolist(), strict=True)
    ]


def answers_of(groups: Sequence[JudgedGroup], algorithm: Algorithm) -> list[Answer]:
    """The answers that enter the loss, group by group; with overlong filtering, only those that ended."""
    return [
        Answer(judged.group.id, judged.group.prompt, completion, advantage)
        for judged in groups
        for completion, advantage in zip(judged.group.completions, judged.advantages, strict=True)
        if _enters_loss(completion, algorithm)
    ]


def by_group(groups: Sequence[JudgedGroup], algorithm: Algorithm, results: Sequence[T]) -> list[list[T | None]]:
    """What came of each answer of `answers_of`, group by group; None for the answers that it left out."""
    entering = [[_enters_loss(completion, algorithm) for completion in judged.group.completions] for judged in groups]
    if sum(map(sum, entering)) != len(results):
        raise ValueError(f"{len(results)} results for {sum(map(sum, entering))} answers")
    rest = iter(results)
    return [[next(rest) if enters else None for enters in members] for members in entering]


def _enters_loss(completion: Completion, algorithm: Algorithm) -> bool:
    return not (algorithm.mask_overlong_truncated and completion.truncated)


def _penalties(group: Group, algorithm: Algorithm, limit: AnswerLimit) -> list[float]:
    """By the limit at which these answers were cut, which may be the model's context."""
    longest = limit.of(group.prompt)
    return [
        algorithm.overlong_penalty_factor * soft_overlong_punishment(length, longest, algorithm.overlong_buffer_len)
        for length in group.lengths
    ]
