"""GSPO: Group Sequence Policy Optimization (arXiv 2507.18071)."""

from dapo.algorithms.spec import AlgorithmSpec

SPEC = AlgorithmSpec(
    name="gspo",
    summary="one ratio per answer, the mean of its log ratios; on-policy ratio (arXiv 2507.18071)",
    ratio="on_policy",
    ratio_level="sequence",
    aggregation="seq-mean-token-mean",
    scale_advantages="group",
    dynamic_sampling=False,
    clip_eps_low=3e-4,
    clip_eps_high=4e-4,
)
