"""Every number that a run reports, declared once: its name, its meaning, its unit and how it is written.

`metrics.jsonl` holds these names and, under `reward/`, whatever further numbers the reward function returns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dapo.tracking.numbers import compact, count, duration, one_digit, percent, scientific, significant, three_digits

MetricValue = float | int | None
"""A metric of one update; None where it has no value (no held-out evaluation, no token to average over)."""

REWARD_PREFIX = "reward/"
"""Names under this prefix come from the reward function and need no declaration."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of an update."""

    name: str
    """The key in `metrics.jsonl`."""
    meaning: str
    """One sentence for a person who reads the name for the first time."""
    unit: str
    """Empty for a pure number."""
    show: Callable[[float], str]
    """Writes a finite value for people."""

    def text(self, value: MetricValue) -> str:
        """The value for people; a dash where there is none."""
        return "-" if value is None or not math.isfinite(value) else self.show(value)


METRICS: Mapping[str, Metric] = {
    name: Metric(name, meaning, unit, show)
    for name, unit, show, meaning in (
        # dynamic sampling
        ("dapo_gen_batches", "rounds", count, "generation rounds that this update needed"),
        ("dapo_generated_groups", "groups", count, "groups generated for this update, over all rounds"),
        ("dapo_qualified_groups", "groups", count, "generated groups whose answers disagree"),
        ("dapo_filtered_groups", "groups", count, "generated groups dropped since all their answers score the same"),
        ("dapo_sampling_efficiency", "share", three_digits, "qualified groups over generated groups"),
        (
            "dapo_discarded_qualified_groups",
            "groups",
            count,
            "qualified groups that the update had no place for, dropped",
        ),
        ("dapo_all_correct_groups", "groups", count, "generated groups in which every answer is right"),
        ("dapo_all_wrong_groups", "groups", count, "generated groups in which every answer is wrong"),
        (
            "dapo_all_correct_share",
            "share",
            three_digits,
            "groups in which every answer is right over generated groups",
        ),
        ("dapo_buffered_groups", "groups", count, "qualified groups kept for the next update"),
        ("dapo_stale_groups", "groups", count, "kept groups dropped since they grew older than max_staleness"),
        # rewards
        ("candidate_reward_mean", "reward", three_digits, "raw reward over every generated answer, before the filter"),
        ("dapo_raw_reward_mean", "reward", three_digits, "raw reward over the trained answers"),
        ("dapo_overlong_penalty_mean", "reward", three_digits, "overlong penalty over the trained answers, 0 or below"),
        (
            "dapo_shaped_reward_mean",
            "reward",
            three_digits,
            "raw reward plus overlong penalty over the trained answers",
        ),
        ("reward_failures", "answers", count, "answers scored 0 since their reward could not be computed"),
        # the update
        ("loss", "", significant, "the loss, over the response tokens of each optimizer step, mean over the steps"),
        ("perplexity", "", significant, "exp of the mean negative log-likelihood of the trained tokens; `dapo sft`"),
        ("grad_norm", "", three_digits, "global gradient norm before clipping, mean over the optimizer steps"),
        ("lr", "", scientific, "learning rate of every optimizer step of this update"),
        (
            "entropy",
            "nats",
            three_digits,
            "entropy of the model's full next-token distribution, mean over trained tokens",
        ),
        ("ratio_mean", "", three_digits, "importance ratio of new to rollout policy, mean over trained tokens"),
        (
            "ratio_std",
            "",
            three_digits,
            "importance ratio of new to rollout policy, standard deviation over trained tokens",
        ),
        ("pg_clipfrac", "share of tokens", percent, "trained tokens whose clip was active"),
        ("pg_clipfrac_lower", "share of tokens", percent, "trained tokens held at the lower clip bound"),
        ("pg_clipfrac_upper", "share of tokens", percent, "trained tokens held at the upper clip bound"),
        (
            "up_clipped_prob_mean",
            "probability",
            three_digits,
            "probability, when they were drawn, of the tokens held at the upper clip bound, mean over those tokens",
        ),
        ("rollout_logprobs_mean", "nats", three_digits, "log-probability of the trained tokens when they were sampled"),
        ("train_logprobs_mean", "nats", three_digits, "log-probability of the trained tokens when they were trained"),
        (
            "rollout_train_logprob_diff_mean",
            "nats",
            scientific,
            "rollout minus training log-probability, mean over tokens",
        ),
        (
            "rollout_train_logprob_abs_diff_mean",
            "nats",
            scientific,
            "absolute difference of rollout and training log-probability, mean over tokens",
        ),
        ("optimizer_steps", "steps", count, "optimizer steps of this update"),
        ("skipped_updates", "updates", count, "optimizer steps skipped so far for a non-finite loss or gradient"),
        # answers
        ("response_length_mean", "tokens", one_digit, "tokens per generated answer, end token included"),
        ("response_length_max", "tokens", count, "tokens of the longest generated answer"),
        (
            "truncated_share",
            "share of answers",
            percent,
            "generated answers that reached the length limit: cut at max_new_tokens or at the model's context (verl's "
            "response_length/clip_ratio, TRL's completions/clipped_ratio)",
        ),
        # work and time
        (
            "rollout_tokens",
            "tokens",
            compact,
            "answer tokens drawn for this update, those of answers given up when a round stopped early included",
        ),
        ("trained_tokens", "tokens", compact, "answer tokens trained in this update"),
        ("rollout_tokens_per_s", "tokens/s", compact, "answer tokens generated per second of generation"),
        ("train_tokens_per_s", "tokens/s", compact, "answer tokens trained per second of the update"),
        ("seconds_rollout", "s", duration, "time spent generating"),
        ("seconds_reward", "s", duration, "time spent waiting for rewards"),
        ("seconds_update", "s", duration, "time spent training"),
        ("seconds_total", "s", duration, "time since the update before, its measuring, logging and saving included"),
        ("epoch", "epochs", count, "passes over the data that were complete, from 0"),
        # evaluation
        (
            "heldout_loss",
            "nats",
            significant,
            "mean negative log-likelihood of the tokens of held-out demonstrations; `dapo sft`",
        ),
        ("heldout_accuracy", "share of answers", three_digits, "answers to held-out prompts that are right"),
        ("heldout_response_length", "tokens", one_digit, "tokens per answer to the held-out prompts"),
    )
}


def metric(name: str) -> Metric:
    """The declaration of `name`. Raises KeyError, saying where to add it, when there is none."""
    if name.startswith(REWARD_PREFIX) and name != REWARD_PREFIX:
        returned = name.removeprefix(REWARD_PREFIX)
        return Metric(name, f"`{returned}` as the reward function returned it, mean over answers", "", three_digits)
    if name not in METRICS:
        raise KeyError(f"metric {name!r} is not declared: add it to METRICS in dapo/tracking/metrics.py")
    return METRICS[name]
