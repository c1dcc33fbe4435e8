"""DAPO (arXiv 2503.14476)."""

from dapo.algorithms.spec import AlgorithmSpec

SPEC = AlgorithmSpec(
    name="dapo",
    summary="Clip-Higher, dynamic sampling, token-level loss, soft overlong punishment, no KL (arXiv 2503.14476)",
    ratio="rollout",
    ratio_level="token",
    aggregation="token-mean",
    scale_advantages="group",
    dynamic_sampling=True,
    clip_eps_low=0.2,
    clip_eps_high=0.28,
)
