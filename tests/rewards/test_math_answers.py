"""Values from group (g) of the public bug reports; the pairs beyond them follow from docs/rewards.md."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dapo.errors import RewardError
from dapo.rewards.exact_number import last_number
from dapo.rewards.math_answers import math_score
from dapo.rewards.math_equality import answers_equal
from dapo.rewards.math_finding import extract_answer
from dapo.rewards.math_text import has_words, normalise, plain_number


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("\\boxed{7}", "7"),
        ("I do not know.", None),
        ("", None),
        ("first \\boxed{2} wait, no: \\boxed{3}", "3"),  # B54
        ("\\fbox{\\frac{1}{2}}", "\\frac{1}{2}"),  # B57
        ("\\boxed{\\left\\{1,2\\right\\}}.", "\\left\\{1,2\\right\\}"),
        ("so $\\boxed 5$", "5"),
        ("\\boxed{3} or rather \\boxed{4", None),  # unclosed: the last answer was not finished
        ("\\boxed{3} \\boxed{}", None),
        ("\\boxed{7} and then Answer: 8", "7"),  # a box goes before "Answer:"
        ("Answer: 1\n...\nFinal Answer: **73**", "73"),  # B56
        ("**Answer:** 34", "34"),
        ("The answer is 34. I hope it is correct.", "34"),
        ("Answer:\n\n34", "34"),
        ("Answer: 3.5", "3.5"),
        ("answering machine", None),
        ("The answer is **42**.", "42"),  # in bold, before the full stop
        ("The answer is: *42*", "42"),
        ("**The final answer is 42.**", "42."),
        ("*Answer*: *42*", "42"),
        ("__Answer:__ __42__", "42"),
        ("**Answer**: **$42$**", "$42$"),
        ("The answer is **5!**", "5!"),  # a factorial, not an exclamation
        ("Answer: 3*4", "3*4"),
        ("Answer: 2**3", "2**3"),
        ("### Answer:\n**42**", "42"),
        ("### Final Answer\n\n42\n", "42"),  # a heading without a colon
        ("**Answer**\n\n42", "42"),
        ("Answer:\n$$\n42\n$$", "42"),
        ("Answer:\n\\[\n\\frac{1}{2}\n\\]\nQ.E.D.", "\\frac{1}{2}"),
        ("Answer:\n```\n42\n```", "42"),
        ("Answer: $$42$$", "$$42$$"),
        ("\\textbf{Answer:} 42", "42"),
        ("\\textbf{Answer: 42}", "42"),
        ("\\boxed{\\text{Answer: } 42}", "42"),
        ("48 + 24 = 72\n#### 72", "72"),  # as GSM8K's solutions end
        ("#### Step 1\nAnswer: 5\n#### Check", "5"),  # "Answer:" goes before hashes
    ],
)
def test_the_final_answer_is_found(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


def test_a_long_boxed_answer_is_not_cut() -> None:
    """B58: 121 characters."""
    long = "1" * 121
    assert math_score(f"{'words ' * 500}\\boxed{{{long}}}", long).value == 1.0


def test_text_behind_the_answer_counts_unless_on_another_line() -> None:
    """B58: the rule is the rest of the sentence or line, however long."""
    assert math_score("Answer: 34\n" + "x" * 300, "34").value == 1.0
    assert math_score("Answer: 34 " + "x" * 300, "34").value == 0.0


def test_each_answer_of_a_batch_gets_its_own_score() -> None:
    """B51."""
    texts = ["\\boxed{7}", "I do not know.", "\\boxed{137}", "", "\\boxed{7}"]
    assert [math_score(text, 7).value for text in texts] == [1, 0, 0, 0, 1]
    assert [extract_answer(text) for text in texts] == ["7", None, "137", None, "7"]


def test_the_last_box_wins() -> None:
    """B54."""
    text = "first \\boxed{2} wait, no: \\boxed{3}"
    assert math_score(text, "3").value == 1.0
    assert math_score(text, "2").value == 0.0
    repeated = "so \\boxed{004} ... the last three digits of 2,552,004 ... \\boxed{004}"
    assert math_score(repeated, "4").value == 1.0


EQUAL = {
    "B53 thousands": [
        ("115000", "115,000"), ("1234", "1,234"), ("1234", "1{,}234"), ("1234", "1\\,234"),
        ("1000000", "1,000,000"), ("10000\\pi", "10,000\\pi"), ("100,200", "100, 200"),
    ],
    "B55 sets": [("\\{1,2,3\\}", "\\{3,2,1\\}"), ("2,3", "3,2"), ("\\pm 2", "2, -2"), ("[0,1)", "[0,1)")],
    "B56 percent": [
        ("28", "28\\%"), ("28", "28%"), ("0.28", "28\\%"), ("28\\%", "28"), ("28\\%", "0.28"),
        ("50", "50 percent"), ("\\frac{1}{3}", "\\frac{100}{3}\\%"),
    ],
    "B56 units": [
        ("13", "\\text{13}"), ("73", "**73**"), ("5", "5\\text{ cm}"), ("5", "5\\ \\mathrm{cm}"),
        ("90", "90^\\circ"), ("10", "\\$10"), ("10", "$10$"), ("-5", "\u22125"), ("0.5", ".5"),
        ("12", "12 apples"), ("25", "25\\text{ cm}^2"), ("5\\sqrt{3}", "5\\sqrt3\\text{ cm}"), ("5", "5cm"),
    ],
    "B56 spelling": [("34", "34."), ("34", "34.0"), ("34", "034"), ("B", "\\textbf{(B)}"), ("7", "$7$")],
    "numbers": [
        ("1/2", "0.5"), ("\\frac{1}{2}", "\\dfrac12"), ("2\\frac{1}{2}", "5/2"), ("2 1/2", "2.5"),
        ("1/3", "0.333333"), ("1500", "1.5\\times 10^3"), ("1024", "2^{10}"), ("\\frac{-1}{2}", "-0.5"),
    ],
    "names": [("5", "x = 5"), ("x=5", "5"), ("12", "A = \\frac{1}{2}bh = 12"), ("36", "12 \\times 3 = 36")],
    "expressions": [
        ("x^2+2x+1", "(x+1)^2"), ("2x=10", "x=5"), ("y=2x+1", "2x-y+1=0"), ("x<3", "3>x"),
        ("4\\sqrt{2}", "4\\sqrt(2)"), ("1-\\frac1e", "1-1/\\mathrm{e}"), ("\\frac{\\pi}{2}", "\\pi/2"),
        ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}"),
    ],
    "words": [("Tuesday", "\\text{tuesday}."), ("12:30", "12:30"), ("11_2", "11_2")],
}  # fmt: skip

DIFFERENT = {
    "B53 pairs": [("(0,1)", "01"), ("1234", "12,34"), ("1234", "(1,234)")],
    "B55 tiny": [
        ("1/2^99", "1/2^98"), ("\\frac{1}{2^{99}}", "\\frac{1}{2^{98}}"), ("0", "10^{-20}"),
        ("10^{-30}x", "2\\cdot10^{-30}x"), ("\\{1/2^{99}\\}", "\\{1/2^{98}\\}"), ("0.0", "\\frac{\\pi}{10^9}"),
    ],
    "B55 partly read": [
        ("1-1/\\mathrm{e}", "1+1/\\mathrm{e}"), ("4", "4\\sqrt(2)"), ("4\\sqrt(2)", "4"), ("3", "3ab"),
        ("7", "3 4"), ("12_7", "12_8"), ("2", "2\\mathrm{e}"), ("3", "3 or 4"), ("2/5", "12:30"),
    ],
    "B55 equations": [
        ("3*x-1*y+13=0", "3x+4y+14=0"), ("3x+4y+14=0", "3*x-1*y+13=0"), ("5", "3x+2=5"),
        ("x^2+1=0", "x^2+2=0"), ("x=5", "y=5"), ("x<3", "x\\le 3"),
    ],
    "B55 brackets": [("[0,1]", "(0,1)"), ("[0,1]", "[0,1)"), ("(2,1)", "(1,2)"), ("2021", "\\pm 2021")],
    "B56 percent": [("28\\%", "0.28\\%"), ("28", "0.28")],
    "numbers": [("100", "100.0001"), ("0.333", "1/3"), ("\\infty", "-\\infty"), ("5", "\\frac{5}{0}")],
    "words": [("east", "seat")],
    "empty": [("", "{}"), ("", "5")],
}  # fmt: skip


def _pairs(table: dict[str, list[tuple[str, str]]]) -> list:
    return [pytest.param(*pair, id=f"{name}: {pair}") for name, pairs in table.items() for pair in pairs]


@pytest.mark.parametrize(("gold", "answer"), _pairs(EQUAL))
def test_spellings_of_the_same_answer_are_right(gold: str, answer: str) -> None:
    assert math_score(f"\\boxed{{{answer}}}", gold).value == 1.0


@pytest.mark.parametrize(("gold", "answer"), _pairs(DIFFERENT))
def test_other_answers_are_wrong(gold: str, answer: str) -> None:
    assert answers_equal(gold, answer) is False


def test_a_missing_final_answer_scores_zero_with_acc() -> None:
    assert math_score("42 of course", "42").metrics == {"acc": 0.0}
    assert math_score("\\fbox{42}", "42").metrics == {"acc": 1.0}  # B57


def test_the_answer_may_be_a_number_or_a_list_of_solutions() -> None:
    assert math_score("\\boxed{7}", 7).value == 1.0
    assert math_score("\\boxed{0.5}", 0.5).value == 1.0
    assert math_score("\\boxed{0}", 0).value == 1.0  # B48
    assert math_score("\\boxed{7}", ["", None, "8", 7]).value == 1.0
    assert math_score("\\boxed{9}", ["8", "7"]).value == 0.0
    assert math_score("\\boxed{3}", "The answer is \\boxed{3}").value == 1.0


@pytest.mark.parametrize("answer", [None, "", "  ", [], [""], float("nan")])
def test_a_row_without_an_answer_is_refused_rather_than_never_right(answer: object) -> None:
    with pytest.raises(RewardError, match="the answer is"):
        math_score("\\boxed{}", answer)


PIECES = [*"\\{}[]()$%^_ ,.:=-*/019xe\n\u2212\u0661", "\\boxed{", "Answer: ", "\\frac", "\\text{", "\\sqrt("]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_text_can_be_read_without_an_error(text: str) -> None:
    answer = normalise(extract_answer(text) or text).text
    has_words(answer)
    number, last = plain_number(answer), last_number(text)
    assert number is None or number == number + 0
    assert last is None or last.is_finite()


@pytest.mark.parametrize("piece", ["*", "answer ", "answer is", "_ ", "$$", ". *", "#### ", r"\[", "answer:\n", "} "])
def test_long_hostile_text_is_searched_in_no_time(piece: str) -> None:
    """`dapo eval` does this in its own process. Searching runs again and again would take minutes."""
    started = time.perf_counter()
    extract_answer("Answer: " + piece * (200_000 // len(piece)) + "x")
    assert time.perf_counter() - started < 5
