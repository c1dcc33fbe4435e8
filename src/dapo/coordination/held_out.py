"""How well the model does on prompts it is not trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dapo.coordination.generation import Clock, ScoredGeneration
from dapo.records import Draw, Prompt
from dapo.rewards.pool import RewardPool
from dapo.rollout.engine import RolloutEngine
from dapo.rollout.settings import Sampling

HELD_OUT_STREAM = 1
"""Added to the seed, so that held-out answers and training answers share no random numbers. It is the same at
every measurement, so that two of them differ by the weights alone."""


@dataclass(frozen=True)
class HeldOutResult:
    accuracy: float
    """Mean over all answers of `acc` where the reward returns it, else of the reward itself."""
    response_length: float
    """Mean tokens of an answer."""
    truncated: float
    """Share of answers that were cut at the limit."""


def measure_held_out(
    engine: RolloutEngine,
    rewards: RewardPool,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    seed: int,
    progress: Callable[[int, int], None],
) -> HeldOutResult:
    """Answer every prompt `sampling.n` times. progress: called with groups done and in all."""
    draws = [Draw(number, prompt) for number, prompt in enumerate(prompts)]
    generate = ScoredGeneration(engine, rewards, sampling, seed + HELD_OUT_STREAM, Clock())
    groups = []
    progress(0, len(draws))
    for group in generate(draws, 0):
        if group is not None:
            groups.append(group)
            progress(len(groups), len(draws))
    completions = [completion for group in groups for completion in group.completions]
    scores = [score for group in groups for score in group.scores]
    return HeldOutResult(
        accuracy=sum(score.metrics.get("acc", score.value) for score in scores) / len(scores),
        response_length=sum(len(completion.tokens) for completion in completions) / len(completions),
        truncated=sum(completion.truncated for completion in completions) / len(completions),
    )
