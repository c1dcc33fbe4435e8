"""The algorithms by name. A new one is a file with a SPEC, and a line here."""

from __future__ import annotations

from dapo.algorithms import dapo, dr_grpo, grpo, gspo
from dapo.algorithms.spec import AlgorithmSpec

ALGORITHMS: dict[str, AlgorithmSpec] = {spec.name: spec for spec in (dapo.SPEC, grpo.SPEC, gspo.SPEC, dr_grpo.SPEC)}
