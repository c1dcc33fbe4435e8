"""pass@k, maj@k and confidence intervals, by numbers worked out by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dapo.evaluation.estimators import bootstrap_intervals, majority_at_k, pass_at_k, reported_k


@pytest.mark.parametrize(
    ("k", "chance"),
    [
        (1, 0.4),  # 2 of 5
        (2, 0.7),  # 1 - C(3,2) / C(5,2) = 1 - 3/10
        (3, 0.9),  # 1 - C(3,3) / C(5,3) = 1 - 1/10
        (4, 1.0),  # of any 4, at least one is right: only 3 are wrong
        (5, 1.0),
    ],
)
def test_pass_at_k_of_two_right_ones_in_five(k: int, chance: float) -> None:
    assert pass_at_k(5, 2, k) == pytest.approx(chance)


def test_pass_at_k_is_the_share_of_all_choices_that_hold_a_right_answer() -> None:
    right = [True, True, True, False, False, False, False]
    for k in range(1, 8):
        choices = list(combinations(right, k))
        assert pass_at_k(7, 3, k) == pytest.approx(sum(map(any, choices)) / len(choices))


def test_pass_at_k_needs_no_more_than_exact_integers() -> None:
    # C(2000,1000) is beyond every float; 1 - C(1999,1000)/C(2000,1000) = 1 - 1000/2000
    assert pass_at_k(2000, 1, 1000) == 0.5


@pytest.mark.parametrize(("n", "right", "k"), [(5, 2, 0), (5, 2, 6), (5, 6, 1), (5, -1, 1)])
def test_pass_at_k_refuses_numbers_that_cannot_be(n: int, right: int, k: int) -> None:
    with pytest.raises(ValueError, match=r"pass@k needs"):
        pass_at_k(n, right, k)


@pytest.mark.parametrize(
    ("votes", "right", "chance"),
    [
        ("7 7 8", [True, True, False], 1.0),
        ("8 8 7", [False, False, True], 0.0),
        ("7 8", [True, False], 0.5),  # a tie of one right and one wrong answer
        ("7 8 9", [True, False, False], 1 / 3),
        ("7 7 8 8 9", [True, True, False, False, False], 0.5),  # 9 does not lead
        ("7", [True], 1.0),
    ],
)
def test_the_answer_given_most_often_counts_and_a_tie_is_a_fair_coin(
    votes: str, right: list[bool], chance: float
) -> None:
    assert majority_at_k(votes.split(), right, len(right)) == pytest.approx(chance)


def test_an_answer_that_states_nothing_does_not_vote() -> None:
    assert majority_at_k([None, None, "7"], [False, False, True], 3) == 1.0
    assert majority_at_k([None, None], [False, False], 2) == 0.0


def test_two_verdicts_on_one_answer_count_by_their_shares() -> None:
    # 7 leads with three votes, of which the checker gave up on one
    assert majority_at_k(["7", "7", "7", "8"], [True, False, True, False], 4) == pytest.approx(2 / 3)


def test_majority_of_k_is_the_mean_over_runs_of_k_neighbours() -> None:
    votes, right = ["7", "7", "8", "8", "7"], [True, True, False, False, True]
    # runs (7 7) right and (8 8) wrong; the fifth answer fills no run
    assert majority_at_k(votes, right, 2) == 0.5
    assert majority_at_k(votes, right, 5) == 1.0


def test_k_is_reported_for_powers_of_two_and_n_itself() -> None:
    assert reported_k(1) == [1]
    assert reported_k(5) == [1, 2, 4, 5]
    assert reported_k(8) == [1, 2, 4, 8]


def test_problems_that_agree_leave_no_uncertainty() -> None:
    assert bootstrap_intervals(np.full((6, 1), 0.25), seed=1).tolist() == [[0.25, 0.25]]


def test_a_coin_of_two_problems_can_come_out_either_way() -> None:
    # a resample of [0, 1] has mean 0 or 1 with chance 1/4 each, far more than the 2.5% beyond either end
    assert bootstrap_intervals(np.array([[0.0], [1.0]]), seed=1).tolist() == [[0.0, 1.0]]


def test_the_interval_is_as_wide_as_the_binomial_one() -> None:
    # 400 problems, half right: standard error sqrt(.25/400) = .025, so 95% is .5 +- 1.96 * .025 = .451 to .549;
    # the ends of 2000 resamples scatter by about .002
    low, high = bootstrap_intervals(np.repeat([[0.0], [1.0]], 200, axis=0), seed=1)[0]
    assert low == pytest.approx(0.451, abs=0.006)
    assert high == pytest.approx(0.549, abs=0.006)


def test_metrics_are_resampled_together_and_by_the_seed() -> None:
    values = np.random.default_rng(0).random((30, 1))
    both = bootstrap_intervals(np.hstack([values, 1 - values]), seed=3)
    assert both[0, 0] == pytest.approx(1 - both[1, 1])  # the same resamples: one's low end is the other's high end
    assert bootstrap_intervals(values, seed=3).tolist() == bootstrap_intervals(values, seed=3).tolist()
    assert bootstrap_intervals(values, seed=3).tolist() != bootstrap_intervals(values, seed=4).tolist()
