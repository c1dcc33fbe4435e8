"""Trying a reward before a run depends on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dapo.errors import RewardError
from dapo.records import Completion, Prompt, Score
from dapo.rewards.built_in import ANSWER_CHECKS
from dapo.rewards.pool import RewardPool
from dapo.rewards.settings import RewardSettings


@dataclass(frozen=True)
class RewardCheck:
    """What a reward said about given answers."""

    scores: tuple[tuple[Score, ...], ...]
    """For each row, one score for each of its answers."""
    failures: Mapping[str, int]
    """Answers that were not judged, by reason; see RewardPool.failures."""


def check_reward(
    settings: RewardSettings, rows_with_completions: Sequence[tuple[Prompt, Sequence[str]]]
) -> RewardCheck:
    """Run the reward on answers given as text, in the same workers and under the same limits as a run.

    The texts were not sampled, so their token lists are empty. Raises RewardError as a run would.
    """
    with RewardPool(settings) as pool:
        pool.check(prompt for prompt, _ in rows_with_completions)
        futures = [
            pool.submit(prompt, [Completion((), (), text, "stop") for text in texts])
            for prompt, texts in rows_with_completions
        ]
        scores = tuple(tuple(future.result()) for future in futures)
        return RewardCheck(scores, pool.failures)


def check_answers(settings: RewardSettings, prompts: Iterable[Prompt]) -> None:
    """Raise RewardError for the first row whose reference answer the built-in reward could never match.

    A person's own reward decides for itself what an answer is, so then nothing is checked; see RewardPool.check.
    """
    if settings.reward is None:
        return
    check = ANSWER_CHECKS[settings.reward]
    for prompt in prompts:
        try:
            check(prompt.answer)
        except RewardError as error:
            raise RewardError(f"row {prompt.index}: {error.problem}", fix=error.fix) from error
