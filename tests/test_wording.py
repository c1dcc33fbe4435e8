"""The words that error messages of every room use."""

from __future__ import annotations

from dapo.wording import first_line, nearest


def test_the_nearest_name_is_given_as_it_is_written() -> None:
    assert nearest("PROMT", ["Answer", "Prompt"]) == "Prompt"


def test_a_name_that_is_like_none_has_no_nearest() -> None:
    # difflib's ratio is 2 x common letters / all letters; at least 0.6 is close: 2 x 3 / 10 and 2 x 2 / 10
    assert nearest("abcde", ["abcxy"]) == "abcxy"
    assert nearest("abcde", ["abxyz"]) is None
    assert nearest("abcde", []) is None


def test_an_error_is_put_into_one_line() -> None:
    assert first_line(ValueError("\n no such split \nAvailable: train")) == "no such split "
    assert first_line(ValueError("one\r\ntwo")) == "one"


def test_an_error_that_says_nothing_gives_its_name() -> None:
    assert first_line(TimeoutError()) == "TimeoutError"
    assert first_line(TimeoutError(" \n")) == "TimeoutError"
