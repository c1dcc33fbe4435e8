"""One update as the line that is written of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dapo.records import Group
from dapo.sampling.dynamic_sampler import Collection
from dapo.training.batch import JudgedGroup
from dapo.training.update import UpdateStats

Value = float | int | None


def collection_metrics(collection: Collection, buffered: int) -> dict[str, Value]:
    """How the groups came together."""
    counts = collection.counts
    return {
        "dapo_gen_batches": counts.rounds,
        "dapo_generated_groups": counts.generated,
        "dapo_qualified_groups": counts.kept,
        "dapo_filtered_groups": counts.all_correct + counts.all_wrong,
        "dapo_all_correct_groups": counts.all_correct,
        "dapo_all_wrong_groups": counts.all_wrong,
        "dapo_all_correct_share": counts.all_correct / counts.generated if counts.generated else None,
        "dapo_sampling_efficiency": counts.kept / counts.generated if counts.generated else None,
        "dapo_discarded_qualified_groups": counts.discarded,
        "dapo_stale_groups": counts.stale,
        "dapo_buffered_groups": buffered,
    }


def reward_metrics(collection: Collection, judged: Sequence[JudgedGroup]) -> dict[str, Value]:
    """Rewards of the trained answers, and of every answer that these weights wrote."""
    raw = [reward for group in judged for reward in group.group.rewards]
    shaped = [reward for group in judged for reward in group.shaped_rewards]
    penalties = [penalty for group in judged for penalty in group.penalties]
    completions = [completion for group in collection.generated for completion in group.completions]
    lengths = [len(completion.tokens) for completion in completions]
    return {
        "candidate_reward_mean": _mean([reward for group in collection.generated for reward in group.rewards]),
        "dapo_raw_reward_mean": _mean(raw),
        "dapo_shaped_reward_mean": _mean(shaped),
        "dapo_overlong_penalty_mean": _mean(penalties),
        **_returned_metrics(collection.generated),
        "response_length_mean": _mean(lengths),
        "response_length_max": max(lengths, default=None),
        "truncated_share": _mean([completion.truncated for completion in completions]),
    }


def update_metrics(stats: UpdateStats, lr: float) -> dict[str, Value]:
    """What the optimizer steps did."""
    return {
        "loss": stats.loss,
        "grad_norm": stats.grad_norm,
        "lr": lr,
        "entropy": stats.entropy,
        "ratio_mean": stats.ratio_mean,
        "ratio_std": stats.ratio_std,
        "pg_clipfrac": stats.clipped_lower + stats.clipped_upper,
        "pg_clipfrac_lower": stats.clipped_lower,
        "pg_clipfrac_upper": stats.clipped_upper,
        "up_clipped_prob_mean": stats.up_clipped_prob,
        "rollout_logprobs_mean": stats.rollout_logprob,
        "train_logprobs_mean": stats.train_logprob,
        "rollout_train_logprob_diff_mean": -stats.logprob_gap,
        "rollout_train_logprob_abs_diff_mean": stats.logprob_abs_gap,
        "optimizer_steps": stats.optimizer_steps,
        "trained_tokens": stats.tokens,
    }


def work_metrics(
    seconds: Mapping[str, float], total: float, rollout_tokens: int, trained_tokens: int
) -> dict[str, Value]:
    """Where time and tokens went, and how fast. rollout_tokens: drawn, those of answers that were given up included."""
    rollout, update = seconds.get("rollout", 0.0), seconds.get("update", 0.0)
    return {
        "rollout_tokens": rollout_tokens,
        "rollout_tokens_per_s": rollout_tokens / rollout if rollout else None,
        "train_tokens_per_s": trained_tokens / update if update else None,
        "seconds_rollout": rollout,
        "seconds_reward": seconds.get("reward", 0.0),
        "seconds_update": update,
        "seconds_total": total,
    }


def _returned_metrics(groups: Sequence[Group]) -> dict[str, Value]:
    """Further numbers of the reward function, as `reward/<key>`, over the answers that have them."""
    values: dict[str, list[float]] = {}
    for group in groups:
        for score in group.scores:
            for key, value in score.metrics.items():
                values.setdefault(f"reward/{key}", []).append(value)
    return {key: _mean(numbers) for key, numbers in sorted(values.items())}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
