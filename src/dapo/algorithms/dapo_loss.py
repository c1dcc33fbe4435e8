"""DAPO's loss (arXiv 2503.14476), for people who have their own loop."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dapo.algorithms.advantages import compute_group_advantages
from dapo.algorithms.losses import Aggregation, Clip, policy_losses, step_size, token_log_ratio, token_weight
from dapo.algorithms.reward_shaping import compute_rule_reward
from dapo.errors import ConfigError


@dataclass(frozen=True)
class DAPOConfig:
    """Settings of the library layer."""

    eps_low: float = 0.2
    """Lower half-width of the clip."""
    eps_high: float = 0.28
    """Upper half-width of the clip, at least eps_low (Clip-Higher)."""
    group_size: int = 16
    """Answers per prompt: `advantages` compares this many rows with each other."""
    max_length: int = 4096
    """Hard limit of an answer in tokens; one that reaches it counts as truncated."""
    cache_length: int = 512
    """Buffer before max_length in which the overlong punishment grows."""
    adv_eps: float = 1e-8
    """Added to the deviation that advantages are divided by."""
    use_token_level_loss: bool = True
    """True: every token weighs the same (eq. 12). False: every answer weighs the same (GRPO, eq. 5)."""
    mask_overlong_truncated: bool = False
    """Leave answers of max_length tokens out of the loss, numerator and denominator alike."""

    def __post_init__(self) -> None:
        if not 0 < self.eps_low < 1:
            raise ConfigError(f"eps_low is {self.eps_low}", fix="choose a number between 0 and 1, such as 0.2")
        if not self.eps_low <= self.eps_high < math.inf:
            raise ConfigError(
                f"eps_high is {self.eps_high} but eps_low is {self.eps_low}",
                fix="Clip-Higher needs eps_high >= eps_low; the paper uses 0.28 and 0.2",
            )
        if self.group_size < 2:
            raise ConfigError(f"group_size is {self.group_size}", fix="a group needs at least 2 answers")
        if not 0 <= self.cache_length < self.max_length:
            raise ConfigError(
                f"cache_length is {self.cache_length} but max_length is {self.max_length}",
                fix="make the buffer smaller than the limit, or 0 to switch the punishment off",
            )
        if not 0 <= self.adv_eps < math.inf:
            raise ConfigError(f"adv_eps is {self.adv_eps}", fix="choose 0 or a small positive number such as 1e-8")

    def shaped_rewards(self, is_correct: Tensor, response_length: Tensor) -> Tensor:
        """+1 for right, -1 for wrong, plus the overlong punishment of `max_length` and `cache_length`.

        is_correct: bool, response_length: int tokens, of one shape, which is returned as float.
        """
        return compute_rule_reward(is_correct, response_length, self.max_length, self.cache_length)

    def advantages(self, rewards: Tensor) -> Tensor:
        """Group advantages of rows in whole groups of `group_size`: (B,) in, (B,) out, with `adv_eps`."""
        if rewards.dim() != 1 or len(rewards) % self.group_size:
            raise ValueError(
                f"rewards must be (B,), with B whole groups of group_size {self.group_size}, got {tuple(rewards.shape)}"
            )
        return compute_group_advantages(rewards.reshape(-1, self.group_size), self.adv_eps).reshape(-1)


class DAPOLoss:
    """The DAPO loss over a padded batch: Clip-Higher (eq. 10) and the token-level mean (eq. 12)."""

    def __init__(self, config: DAPOConfig | None = None) -> None:
        self.config = config or DAPOConfig()

    def __call__(
        self, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor | None = None
    ) -> dict[str, Tensor]:
        """One loss for all rows, with what the clip did.

        logprobs, old_logprobs: (B, T) log-probabilities of the sampled tokens now and when they were written;
        B is a whole number of groups or part of one. advantages: one per row (B,) or per token (B, T).
        mask: (B, T), nonzero on response tokens; None: all are. What lies outside is not touched, NaN included.

        Returns scalars: `loss`, `surrogate1` and `surrogate2` (means of r A and clip(r) A over the response tokens),
        and shares of response tokens whose clip was active: `clip_ratio`, `up_clip_ratio`, `low_clip_ratio`.
        """
        config = self.config
        _check_shapes(logprobs, old_logprobs, advantages, mask)
        chosen = _response_tokens(logprobs, mask)
        if config.mask_overlong_truncated:
            chosen = chosen & (chosen.sum(-1, keepdim=True) < config.max_length)
        per_token = advantages if advantages.dim() == 2 else advantages[:, None].expand_as(logprobs)
        losses = policy_losses(
            token_log_ratio(logprobs[chosen], old_logprobs[chosen].detach(), "rollout"),
            per_token[chosen],
            Clip(config.eps_low, config.eps_high),
        )
        lengths: list[int] = chosen.sum(-1).tolist()
        aggregation: Aggregation = "token-mean" if config.use_token_level_loss else "seq-mean-token-mean"
        weights = [token_weight(length, aggregation, config.max_length) for length in lengths if length]
        weight = torch.tensor(weights, dtype=losses.loss.dtype, device=losses.loss.device)
        repeats = torch.tensor([length for length in lengths if length], dtype=torch.int64, device=weight.device)
        weight = weight.repeat_interleave(repeats)
        tokens = max(sum(lengths), 1)
        lower, upper = losses.clipped_lower.sum() / tokens, losses.clipped_upper.sum() / tokens
        return {
            "loss": (losses.loss * weight).sum() / max(step_size(lengths, aggregation), 1),
            "surrogate1": losses.surrogate.sum() / tokens,
            "surrogate2": losses.clipped_surrogate.sum() / tokens,
            "clip_ratio": lower + upper,
            "up_clip_ratio": upper,
            "low_clip_ratio": lower,
        }


def _response_tokens(logprobs: Tensor, mask: Tensor | None) -> Tensor:
    """(B, T) bool."""
    if mask is None:
        return torch.ones_like(logprobs, dtype=torch.bool)
    return mask != 0


def _check_shapes(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor | None) -> None:
    """Raises ValueError: a shape that only broadcasts would train the wrong numbers in silence."""
    if logprobs.dim() != 2:
        raise ValueError(f"logprobs must be (B, T), got shape {tuple(logprobs.shape)}")
    for name, given in (("old_logprobs", old_logprobs), ("mask", mask)):
        if given is not None and given.shape != logprobs.shape:
            raise ValueError(f"{name} has shape {tuple(given.shape)}, logprobs {tuple(logprobs.shape)}")
    if advantages.shape not in (logprobs.shape, logprobs.shape[:1]):
        raise ValueError(
            f"advantages must be (B,) or (B, T), got {tuple(advantages.shape)} for {tuple(logprobs.shape)}"
        )
