"""What an answer states: equal answers must be counted as one, and reading them must be quick."""

from __future__ import annotations

import pytest

from dapo.evaluation.votes import VOTES, countdown_vote, exact_number_vote, math_vote
from dapo.rewards.built_in import BUILT_IN


def test_every_built_in_reward_says_which_answer_it_reads() -> None:
    assert VOTES.keys() == BUILT_IN.keys()


@pytest.mark.parametrize(
    "texts",
    [
        (r"so \boxed{1/2}", r"Answer: 0.5", r"\boxed{\frac{1}{2}}", r"$\boxed{\dfrac{1}{2}}$"),
        (r"\boxed{115{,}000}", "the answer is 115,000.", r"\boxed{115000}"),
        (r"\boxed{(B)}", "Answer: b"),
        (r"\boxed{x + 1}", r"\boxed{x+1}"),
    ],
)
def test_spellings_of_one_answer_are_one_vote(texts: tuple[str, ...]) -> None:
    assert len({math_vote(text) for text in texts}) == 1


@pytest.mark.parametrize(("one", "other"), [("12", "1.2"), ("12,34", "1234"), ("x+1", "x-1"), ("-5", "5")])
def test_different_answers_are_different_votes(one: str, other: str) -> None:
    assert math_vote(rf"\boxed{{{one}}}") != math_vote(rf"\boxed{{{other}}}")


def test_b51_texts_without_an_answer_state_none() -> None:
    texts = [r"\boxed{7}", "I do not know.", r"\boxed{137}", "", r"\boxed{7}"]
    assert [math_vote(text) for text in texts] == ["7", None, "137", None, "7"]


def test_b54_the_last_box_is_the_answer() -> None:
    assert math_vote(r"first \boxed{2} wait, no: \boxed{3}") == "3"


@pytest.mark.parametrize(
    ("text", "vote"),
    [
        ("The sum is 7.", "7"),
        ("7.0", "7"),
        ("+7", "7"),
        ("100", "100"),
        ("-0.0", "0"),
        ("1,234.50", "1234.5"),
        ("seven", None),
    ],
)
def test_a_number_is_one_vote_however_it_is_written(text: str, vote: str | None) -> None:
    assert exact_number_vote(text) == vote


def test_b50_an_answer_that_no_computer_can_evaluate_is_only_read() -> None:
    tower = r"\boxed{9^{9^{9^9}}}"
    assert math_vote(tower) == math_vote(f"so {tower}")


def test_long_and_hostile_texts_are_read_to_the_end() -> None:
    # Tens of thousands of spaces after the word would take a backtracking pattern hours.
    gap = " " * 300_000
    assert math_vote(f"answer{gap}? answer is{gap}34") == "34"
    assert math_vote(f"Answer:{gap}\n{gap}34{gap}\nmore") == "34"
    assert math_vote("\\boxed{" + "{" * 100_000) is None
    assert math_vote("\\boxed{" + "x" * 5000 + "}") == "x" * 5000


def test_countdown_votes_for_the_expression_of_the_last_line() -> None:
    assert countdown_vote("3+5+7=15\n3 * 5 + 7 = 22\n") == "3*5+7"
    assert countdown_vote(" \n") is None
