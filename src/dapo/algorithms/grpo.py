"""GRPO: Group Relative Policy Optimization (arXiv 2402.03300), without a KL term."""

from dapo.algorithms.spec import AlgorithmSpec

SPEC = AlgorithmSpec(
    name="grpo",
    summary="group advantages, mean over each answer and then over answers; on-policy ratio (arXiv 2402.03300)",
    ratio="on_policy",
    ratio_level="token",
    aggregation="seq-mean-token-mean",
    scale_advantages="group",
    dynamic_sampling=False,
    clip_eps_low=0.2,
    clip_eps_high=0.2,
)
