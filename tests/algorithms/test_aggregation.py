"""From token losses to the loss of an optimizer step: one weighted sum, divided once."""

from __future__ import annotations

import pytest
import torch

from dapo.algorithms.losses import Aggregation, step_size, token_weight


def aggregate(rows: list[list[float]], aggregation: Aggregation, horizon: int = 4) -> float:
    """The loss of answers whose token losses are given, as one pass would make it."""
    lengths = [len(row) for row in rows]
    total = sum(token_weight(len(row), aggregation, horizon) * sum(row) for row in rows if row)
    return total / step_size(lengths, aggregation)


# Rows [1,1,1,1] and [3,3]: (4+6)/6, (1+3)/2, (4+6)/2, and the last over a horizon of 4.
@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("token-mean", 10 / 6),
        ("seq-mean-token-mean", 2.0),
        ("seq-mean-token-sum", 5.0),
        ("seq-mean-token-sum-norm", 1.25),
    ],
)
@pytest.mark.parametrize("masked_rows", [0, 1])
def test_each_aggregation_does_what_its_name_says_b07(
    aggregation: Aggregation, expected: float, masked_rows: int
) -> None:
    """B07: and a fully masked third row changes none of them."""
    rows = [[1.0] * 4, [3.0] * 2, *[[]] * masked_rows]
    assert aggregate(rows, aggregation) == pytest.approx(expected)


def test_horizon_acts_only_where_it_is_named() -> None:
    assert token_weight(2, "seq-mean-token-sum-norm", 8) == 0.125
    assert token_weight(2, "seq-mean-token-sum", 8) == 1.0
    assert token_weight(2, "seq-mean-token-mean", 8) == 0.5
    assert token_weight(2, "token-mean", 8) == 1.0


def test_token_mean_over_passes_weighs_every_token_alike_b02() -> None:
    """B02: 2 tokens of loss 1 and 6 of loss 3 in two passes: (2 + 18)/8 = 2.5, each token's gradient 1/8."""
    first, second = torch.ones(2, requires_grad=True), torch.full((6,), 3.0, requires_grad=True)
    tokens = step_size([2, 6], "token-mean")
    passes = [(part * token_weight(len(part), "token-mean", 1)).sum() / tokens for part in (first, second)]
    for loss in passes:
        loss.backward()
    assert sum(loss.item() for loss in passes) == pytest.approx(2.5)
    for part in (first, second):
        assert part.grad is not None
        assert part.grad.tolist() == [0.125] * len(part)


def test_sum_of_losses_is_divided_by_the_tokens_b05() -> None:
    """B05: sum 10 over 4 tokens is 2.5."""
    assert aggregate([[4.0, 3.0], [2.0, 1.0]], "token-mean") == 2.5


def test_each_optimizer_step_divides_by_its_own_tokens_b06() -> None:
    """B06: 16 answers of 10 tokens of loss 1 in 4 steps: each step is 40/40 = 1, not 40/160."""
    assert [aggregate([[1.0] * 10] * 4, "token-mean") for _ in range(4)] == [1.0] * 4


@pytest.mark.parametrize("aggregation", ["seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"])
def test_sample_level_losses_are_divided_by_the_answers_that_have_tokens(aggregation: Aggregation) -> None:
    assert step_size([4, 0, 2], aggregation) == 2
    assert step_size([4, 0, 2], "token-mean") == 6
