"""One algorithm's loss over flat response tokens, as sums: the function that the trainer calls for each pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dapo.algorithms.losses import TokenLosses, policy_losses, sequence_log_ratio, token_log_ratio
from dapo.algorithms.settings import Algorithm


@dataclass(frozen=True)
class ResponseTokens:
    """The response tokens of some answers back to back, as the loss sees them; all (T,)."""

    old_logp: Tensor
    """float32, recorded by the rollout engine."""
    advantage: Tensor
    """float32, one answer's advantage on each of its tokens."""
    weight: Tensor
    """float32, `token_weight` of the answer on each of its tokens."""
    sequence: Tensor
    """int64, which answer each token belongs to: 0, 1, 2, ..."""
    answers: int
    """How many answers there are."""


def policy_loss_sum(algorithm: Algorithm, logp: Tensor, tokens: ResponseTokens) -> tuple[Tensor, TokenLosses]:
    """Weighted sum of the token losses, to be divided once by `step_size`, and the tokens' own losses.

    logp: (T,) float32, log-probabilities under the weights being trained.
    """
    log_ratio = token_log_ratio(logp, tokens.old_logp, algorithm.ratio)
    if algorithm.ratio_level == "sequence":
        log_ratio = sequence_log_ratio(log_ratio, tokens.sequence, tokens.answers)
    losses = policy_losses(log_ratio, tokens.advantage, algorithm.clip)
    return torch.sum(losses.loss * tokens.weight), losses
