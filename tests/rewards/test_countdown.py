import pytest
from hypothesis import given
from hypothesis import strategies as st

from dapo.errors import RewardError
from dapo.records import Prompt, Score
from dapo.rewards import RewardSettings, check_reward
from dapo.rewards.countdown import countdown_score, final_expression

PROBLEM = "3 5 7 = 22"


@pytest.mark.parametrize(
    "text",
    [
        "3*5+7",  # 15 + 7
        "(3*5)+7=15+7=22",
        "7+3*5",
        "(7+(3)*((5)))",
        " 3 * 5 + 7 \n\n",
        "3+5+7=15\n(7-5)*3=2*3=6\n3*5+7=22",  # a search: only its last line counts
        "3*5+7=99",  # what is written behind the equals sign does not count
        "3\u00d75+7",
        "03*5+007",
    ],
)
def test_an_expression_of_all_numbers_that_gives_the_target_is_right(text: str) -> None:
    assert countdown_score(text, PROBLEM) == Score(1.0, {"acc": 1.0})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I do not know.",
        "22",
        "3*5+7\n3+5+7",  # the last line is 15
        "22=3*5+7",  # the expression comes first
        "3+5+7",  # 15
        "3*(5+7)",  # 36: brackets go first
        "3*5+7+0",  # a number too many
        "15+7",  # numbers that were not given
        "3*5+7+5-5",  # one used again
        "1 5+7",
        "3*5+7.",
        "3*5+ +7",
        "3*5++7",
        "+3*5+7",
        "3*5+7+",
        "3*5 7",
        "(3*5+7",
        "3*5+7)",
        ")3*5+7(",
        "3(*)5+7",
        "()3*5+7",
        "3*5+(7)()",
        "(3)(5)+7",
        "3**5+7",
        "7--(3*5)",
        "3*5+7 # right",
        "int('3')*5+7",
        "__import__('os').abort()",
        "\u0663*5+7",  # another script's digit 3
        "3\u00b2*5+7",
    ],
)
def test_anything_else_is_wrong(text: str) -> None:
    assert countdown_score(text, PROBLEM) == Score(0.0, {"acc": 0.0})


def test_signs_of_one_rank_go_from_left_to_right_and_may_pass_below_zero() -> None:
    assert countdown_score("9-4-3", "3 4 9 = 2").value == 1.0
    assert countdown_score("9-(4-3)", "3 4 9 = 8").value == 1.0
    assert countdown_score("3-9+8", "3 8 9 = 2").value == 1.0  # -6 on the way
    assert countdown_score("2+3*4-5", "2 3 4 5 = 9").value == 1.0  # 2 + 12 - 5
    assert countdown_score("3\u22121+2", "1 2 3 = 4").value == 1.0


def test_a_number_given_twice_is_used_twice() -> None:
    assert countdown_score("4*4-4", "4 4 4 = 12").value == 1.0
    assert countdown_score("4+4+4", "4 4 4 = 12").value == 1.0
    assert countdown_score("4*3", "4 4 3 = 12").value == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10**6,
        "(" * 190 + "3*5+7" + ")" * 190,  # right, and still short enough to be read
        "3" * 10**6,
        "1" * 10**6 + "=",
        "3*5+7" + " " * 10**6 + "x",
        "9" + "*9" * 10**6,
        "-" * 10**6,
        "\n" * 10**6 + "=" * 10**6,
        "3+5+7\n" * 10**5,
        "\0\ud800",
    ],
    ids=lambda text: f"{text[:5]!r}...",
)
def test_hostile_answers_are_scored_in_a_worker_and_none_of_them_fails(text: str) -> None:
    row = Prompt(0, "p", (1,), answer=PROBLEM, row={"answer": PROBLEM})
    check = check_reward(RewardSettings(reward="countdown", reward_workers=1), [(row, [text, "3*5+7"])])
    expected = float(text.startswith("((((") and "3" in text)
    assert [score.value for score in check.scores[0]] == [expected, 1.0]
    assert not sum(check.failures.values())


def test_an_expression_beyond_400_characters_is_not_read() -> None:
    """5 characters and 2 x 197 brackets are 399; one more pair is 401."""
    assert countdown_score("(" * 197 + "3*5+7" + ")" * 197, PROBLEM).value == 1.0
    assert countdown_score("(" * 198 + "3*5+7" + ")" * 198, PROBLEM).value == 0.0


@given(st.lists(st.sampled_from([*"357()+-*= \n\u00d7\u2212x", "22"]), max_size=30).map("".join))
def test_any_text_can_be_read_and_python_agrees_where_it_can_read_it(text: str) -> None:
    """Python's own parser as the judge of the expressions that we call right."""
    if countdown_score(text, PROBLEM).value:
        plain = final_expression(text).replace("\u00d7", "*").replace("\u2212", "-")
        assert eval(plain) == 22


@pytest.mark.parametrize(
    "answer",
    [None, "", "22", 22, "3 5 7", "3 5 7 = ", "3,5,7 = 22", "= 22", "3 5 7 = -1", "3 5 = 7 = 22", "1 " * 21 + "= 1"],
)
def test_an_answer_that_is_not_a_problem_is_refused(answer: object) -> None:
    with pytest.raises(RewardError, match="is not a countdown problem"):
        countdown_score("3*5+7", answer)
