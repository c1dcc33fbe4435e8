"""What n answers to each problem say about the model, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
RESAMPLES = 2000
_CELLS = 1_000_000
"""Most numbers of the resampling that are in memory at once."""


def pass_at_k(n: int, right: int, k: int) -> float:
    """Chance that at least one of k answers is right: 1 - C(n - right, k) / C(n, k).

    The unbiased estimate from `right` right ones among n answers, of which k are taken without putting back
    (arXiv 2107.03374, eq. 1). Raises ValueError unless 1 <= k <= n and 0 <= right <= n.
    """
    if not (1 <= k <= n and 0 <= right <= n):
        raise ValueError(f"pass@k needs 1 <= k <= n and 0 <= right <= n, got n {n}, right {right}, k {k}")
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)


def majority_at_k(votes: Sequence[str | None], right: Sequence[bool], k: int) -> float:
    """Chance that the answer given most often among k is right.

    votes: what each of n answers stated, None for one that states nothing and so does not vote. right: whether each
    is right. The n answers are cut into n // k runs of k neighbours, what is left over not being used; the mean over
    the runs is returned. A tie is broken by a fair coin: it counts as the share of the tied answers that are
    right. A run in which nobody votes counts 0.
    """
    if not (1 <= k <= len(votes) == len(right)):
        raise ValueError(f"maj@k needs 1 <= k <= n, got n {len(votes)} and {len(right)}, k {k}")
    runs = len(votes) // k
    return sum(_majority(votes[at * k : at * k + k], right[at * k : at * k + k]) for at in range(runs)) / runs


def _majority(votes: Sequence[str | None], right: Sequence[bool]) -> float:
    verdicts: dict[str, list[bool]] = {}
    for vote, is_right in zip(votes, right, strict=True):
        if vote is not None:
            verdicts.setdefault(vote, []).append(is_right)
    if not verdicts:
        return 0.0
    most = max(map(len, verdicts.values()))
    # One answer is judged once for each time it is given; a checker that timed out once does not decide alone.
    leaders = [sum(judged) / most for judged in verdicts.values() if len(judged) == most]
    return sum(leaders) / len(leaders)


def reported_k(n: int) -> list[int]:
    """The k that pass@k and maj@k are given for: 1, 2, 4, ... below n, and n itself."""
    return [2**power for power in range(n.bit_length()) if 2**power < n] + [n]


def bootstrap_intervals(values_PM: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """(M, 2): lower and upper end of the 95% confidence interval of each metric's mean over the problems.

    values_PM: problems x metrics. Percentile bootstrap over problems, 2000 resamples drawn from `seed`. It tells how
    much the result depends on which problems were asked.
    """
    problems = len(values_PM)
    random = np.random.default_rng(seed)
    shares = np.full(problems, 1.0 / problems)
    size = max(_CELLS // problems, 1)
    means = [
        random.multinomial(problems, shares, size=min(size, RESAMPLES - start)) @ values_PM / problems
        for start in range(0, RESAMPLES, size)
    ]
    tail = (1.0 - CONFIDENCE) / 2
    return np.quantile(np.concatenate(means), [tail, 1.0 - tail], axis=0).T
