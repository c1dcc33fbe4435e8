"""Dr. GRPO: GRPO without its length and difficulty biases (arXiv 2503.20783)."""

from dapo.algorithms.spec import AlgorithmSpec

SPEC = AlgorithmSpec(
    name="dr_grpo",
    summary="advantages not divided by the deviation, sums over a fixed length; on-policy ratio (arXiv 2503.20783)",
    ratio="on_policy",
    ratio_level="token",
    aggregation="seq-mean-token-sum-norm",
    scale_advantages="none",
    dynamic_sampling=False,
    clip_eps_low=0.2,
    clip_eps_high=0.2,
)
