"""`rollouts.jsonl`: every group that was generated, with each answer's tokens, reward, advantage and training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from dapo.records import Completion, Group, Score, TrainedTokens
from dapo.tracking.json_lines import JsonLines

RolloutStatus = Literal["trained", "constant", "surplus", "stale"]
"""What became of a group: trained; dropped since its answers agree; dropped since the batch was full; dropped since
it grew too old."""


class RolloutLog:
    """Writes one line per group to `path`."""

    def __init__(self, path: Path) -> None:
        self._lines = JsonLines(path)

    def write(
        self,
        step: int,
        group: Group,
        status: RolloutStatus,
        penalties: Sequence[float] | None = None,
        advantages: Sequence[float] | None = None,
        trained: Sequence[TrainedTokens | None] | None = None,
    ) -> None:
        """Adds the line of `group`, used or dropped in update `step`.

        penalties, advantages, trained: one per completion, or None for a group that was not trained; `trained` is
        None too for an answer that the loss left out or whose optimizer step was skipped. Log-probabilities are
        written exactly. Raises ValueError when the counts differ, DapoError naming the file when it cannot be written.
        """
        nothing = [None] * len(group.completions)
        completions = [
            _completion(*parts)
            for parts in zip(
                group.completions,
                group.scores,
                nothing if penalties is None else penalties,
                nothing if advantages is None else advantages,
                nothing if trained is None else trained,
                strict=True,
            )
        ]
        self._lines.append(
            step,
            {
                "group": group.id,
                "prompt_index": group.prompt.index,
                "status": status,
                "version": group.version,
                "prompt": group.prompt.text,
                "answer": group.prompt.answer,
                "completions": completions,
            },
        )

    def truncate_after(self, step: int) -> None:
        """Forgets the groups of updates after `step`: used when a run goes back to a checkpoint."""
        self._lines.truncate_after(step)


def _completion(
    completion: Completion,
    score: Score,
    penalty: float | None,
    advantage: float | None,
    trained: TrainedTokens | None,
) -> dict[str, Any]:
    return {
        "text": completion.text,
        "tokens": completion.tokens,
        "logprobs": completion.logprobs,
        "stop_reason": completion.stop_reason,
        "reward": score.value,
        "metrics": score.metrics,
        "penalty": penalty,
        "advantage": advantage,
        "train_logprobs": trained.logprobs if trained else None,
        "clipped_upper": trained.clipped_upper if trained else None,
        "clipped_lower": trained.clipped_lower if trained else None,
    }
