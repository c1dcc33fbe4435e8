from decimal import Decimal

import pytest

from dapo.errors import RewardError
from dapo.rewards.exact_number import exact_number_score, last_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", "7"),
        ("The sum is 7.", "7"),
        ("3 + 4 = 7", "7"),
        ("It was 8, no: -7!", "-7"),
        ("5-3", "3"),  # the minus subtracts
        ("\u22125", "-5"),
        ("about 1,234,567.50 dollars", "1234567.50"),
        ("12,34", "34"),  # a pair
        ("1,2345", "2345"),
        ("1,234,56", "56"),
        ("x = .5", "0.5"),
        ("007", "7"),
        ("-$5", "-5"),  # a debt: the currency sign stands between the minus and the number
        ("a change of \u2212\u20ac1,234.50", "-1234.50"),
        ("-\\$.50", "-0.50"),
        ("$-5$", "-5"),
        ("$8-$3", "3"),  # the minus subtracts
        ("5 - $3", "3"),
    ],
)
def test_the_last_number_is_read(text: str, number: str) -> None:
    assert last_number(text) == Decimal(number)


def test_no_number_is_no_answer() -> None:
    assert last_number("I do not know.") is None
    assert exact_number_score("", 0).value == 0.0


def test_only_the_exact_number_scores() -> None:
    assert exact_number_score("7.0", 7).value == 1.0
    assert exact_number_score("0.1", 0.1).metrics == {"acc": 1.0}
    assert exact_number_score("0.10000000000000000001", 0.1).metrics == {"acc": 0.0}
    assert exact_number_score("7 or 8", "7").value == 0.0
    assert exact_number_score("0", "0").value == 1.0  # B48: zero is an answer
    assert exact_number_score("1234", "1,234").value == 1.0


@pytest.mark.parametrize("answer", [None, "", "seven", "7 or 8", True, float("nan"), [7], "1/2"])
def test_an_answer_that_is_not_one_number_is_refused(answer: object) -> None:
    with pytest.raises(RewardError, match="is not one number"):
        exact_number_score("7", answer)
