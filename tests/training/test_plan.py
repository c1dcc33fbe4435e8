"""Passes are planned from lengths alone, the same on every rank, and lose nobody."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dapo.training.plan import AnswerSize, plan_passes

TWO_GROUPS = [AnswerSize(0, 3, 3), AnswerSize(0, 3, 2), AnswerSize(1, 2, 3), AnswerSize(1, 2, 4)]


@pytest.mark.parametrize(
    ("limit", "passes"),
    [
        (1, ((0,), (1,), (2,), (3,))),
        (5, ((0,), (1,), (2,), (3,))),
        (6, ((0, 1), (2,), (3,))),
        (7, ((0, 1), (2, 3))),
        (13, ((0, 1, 2, 3),)),
    ],
)
def test_a_pass_is_cut_before_it_exceeds_its_tokens(limit: int, passes: tuple[tuple[int, ...], ...]) -> None:
    """Group 0: prompt 3; answers with 2 and 1 inputs. Group 1: prompt 2; 2 and 3 inputs.

    Packed alone 5, 4, 4, 5; 0 and 1 share their prompt: 6; 2 and 3: 7; all: 13.
    """
    assert plan_passes(TWO_GROUPS, mini_bs=4, max_tokens=limit) == (passes,)


def test_mini_bs_ends_a_pass_whatever_room_is_left() -> None:
    assert plan_passes(TWO_GROUPS, mini_bs=3, max_tokens=99) == (((0, 1, 2), (3,)),)


def test_ranks_get_equal_numbers_of_passes_some_of_them_empty() -> None:
    """B79: a limit of 200 tokens; rank 0 has 100, 100, 100 and needs two passes, rank 1 has 50, 50 and needs one."""
    sizes = [AnswerSize(number, 50, 51) for number in range(3)] + [AnswerSize(number, 25, 26) for number in (3, 4)]
    assert plan_passes(sizes, mini_bs=5, max_tokens=200, ranks=2) == (((0, 1), (2,)), ((3, 4), ()))


def test_fewer_answers_than_ranks_leave_empty_passes() -> None:
    assert plan_passes(TWO_GROUPS[:1], mini_bs=4, max_tokens=99, ranks=3) == (((0,),), ((),), ((),))


@pytest.mark.parametrize(
    ("answers", "ranks", "shares"), [(5, 2, [3, 2]), (5, 3, [2, 2, 1]), (1, 3, [1, 0, 0]), (4, 2, [2, 2])]
)
def test_a_pass_is_shared_out_evenly_in_order(answers: int, ranks: int, shares: list[int]) -> None:
    """B82, B80: nothing is lost and nothing is added."""
    plan = plan_passes([AnswerSize(0, 1, 1)] * answers, mini_bs=9, max_tokens=99, ranks=ranks)
    assert [sum(map(len, passes)) for passes in plan] == shares
    assert [place for passes in plan for one in passes for place in one] == list(range(answers))


def test_nothing_to_train_needs_no_pass() -> None:
    assert plan_passes([], mini_bs=4, max_tokens=9, ranks=2) == ((), ())


SIZES = st.lists(st.builds(AnswerSize, st.integers(0, 3), st.integers(1, 30), st.integers(1, 40)), max_size=30)


@given(SIZES, st.integers(1, 12), st.integers(1, 120), st.integers(1, 6))
def test_every_answer_is_in_one_pass_and_every_rank_makes_as_many(
    sizes: list[AnswerSize], mini_bs: int, max_tokens: int, ranks: int
) -> None:
    plan = plan_passes(sizes, mini_bs=mini_bs, max_tokens=max_tokens, ranks=ranks)
    assert len({len(passes) for passes in plan}) == 1
    assert Counter(place for passes in plan for one in passes for place in one) == Counter(range(len(sizes)))
    for one in (one for passes in plan for one in passes if len(one) > 1):
        packed = sum(sizes[place].answer - 1 for place in one)
        starts = one[:1] + tuple(after for place, after in pairwise(one) if sizes[place].group != sizes[after].group)
        assert packed + sum(sizes[place].prompt for place in starts) <= max_tokens
