"""From rows to tokens: one template, one begin-of-sequence, and every dropped row counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dapo.data import DataSettings, PromptSet, Row, encode_prompts, load_rows
from dapo.data.readers import RawRow
from dapo.data.rows import check_row
from dapo.errors import DataError

BOS, EOS = 0, 1
Make = Callable[..., Any]


def rows_of(*columns: dict[str, Any]) -> list[Row]:
    return [check_row(RawRow(f"row {index + 1}", each), index, "d.json") for index, each in enumerate(columns)]


def strings(*prompts: str) -> list[Row]:
    return rows_of(*({"prompt": prompt} for prompt in prompts))


def encode(rows: list[Row], tokenizer: Any, **settings: Any) -> PromptSet:
    return encode_prompts(rows, DataSettings(dataset_path="d.json", **settings), tokenizer)


def test_a_string_is_encoded_as_it_is_with_one_bos(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer()
    (prompt,) = encode(strings("1, 2,"), tokenizer).prompts
    assert prompt.text == "1, 2,"
    assert prompt.tokens[0] == BOS
    assert tokenizer.decode(prompt.tokens[1:]) == "1, 2,"
    assert prompt.messages == ()


def test_a_string_that_begins_with_bos_gets_no_second_one(make_tokenizer: Make) -> None:
    (prompt,) = encode(strings("<s>ab"), make_tokenizer()).prompts
    assert len(prompt.tokens) == 3  # <s>, a, b
    assert prompt.tokens.count(BOS) == 1


def test_a_tokenizer_without_bos_of_its_own_adds_none(make_tokenizer: Make) -> None:
    (prompt,) = encode(strings("ab"), make_tokenizer(around="$A")).prompts
    assert len(prompt.tokens) == 2


def test_the_end_that_a_tokenizer_puts_behind_every_text_is_left_off(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer(around="<s> $A </s>")
    (prompt,) = encode(strings("ab"), tokenizer).prompts
    assert len(prompt.tokens) == 3  # <s>, a, b
    assert EOS not in prompt.tokens
    (ended,) = encode(strings("<s>ab</s>"), tokenizer).prompts  # here the person wrote it
    assert ended.tokens[-1] == EOS


@pytest.mark.parametrize("text", [" <s>ab", "\n\n<s>ab", "<s><s>ab", "<s> <s>ab", " <s>\n<s><s>ab"])
def test_begin_tokens_that_a_text_writes_become_one_that_is_the_first(make_tokenizer: Make, text: str) -> None:
    for around in ("<s> $A", "$A", "<s> $A </s>"):
        (prompt,) = encode(strings(text), make_tokenizer(around=around)).prompts
        assert prompt.text == "<s>ab"
        assert len(prompt.tokens) == 3  # <s>, a, b
        assert (prompt.tokens[0], prompt.tokens.count(BOS)) == (BOS, 1)


def test_a_begin_token_further_in_stays_where_it_was_written(make_tokenizer: Make) -> None:
    (prompt,) = encode(strings("a<s>b"), make_tokenizer()).prompts
    assert [token == BOS for token in prompt.tokens] == [True, False, True, False]  # <s>, a, <s>, b


@pytest.mark.parametrize(
    "front", ["\n{{ bos_token }}", "{{ bos_token }}{{ bos_token }}", "{{ bos_token }}\n{{ bos_token }}"]
)
def test_begin_tokens_that_a_template_writes_become_one_that_is_the_first(make_tokenizer: Make, front: str) -> None:
    tokenizer = make_tokenizer(chat_template=front + "{{ messages[0].content }}")
    (prompt,) = encode(rows_of({"prompt": [{"role": "user", "content": "ab"}]}), tokenizer).prompts
    assert (prompt.text, len(prompt.tokens), prompt.tokens[0]) == ("<s>ab", 3, BOS)


@pytest.mark.parametrize(("text", "ends"), [("ab", 0), ("ab</s>", 1), ("ab</s></s>", 2), ("<s>ab</s>", 1)])
def test_a_text_keeps_as_many_end_tokens_as_were_written(make_tokenizer: Make, text: str, ends: int) -> None:
    for around in ("<s> $A </s>", "<s> $A"):
        (prompt,) = encode(strings(text), make_tokenizer(around=around)).prompts
        assert (len(prompt.tokens), prompt.tokens.count(EOS)) == (3 + ends, ends)  # <s>, a, b and the ends


def test_white_space_behind_a_written_end_is_not_closed_again(make_tokenizer: Make) -> None:
    (prompt,) = encode(strings("ab</s> "), make_tokenizer(around="<s> $A </s>")).prompts
    assert [token == EOS for token in prompt.tokens] == [False, False, False, True, False]  # <s>, a, b, </s>, space


def test_the_chat_template_is_applied_once_and_brings_the_only_bos(make_tokenizer: Make) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]
    tokenizer = make_tokenizer()
    (prompt,) = encode(rows_of({"prompt": chat, "answer": "2"}), tokenizer).prompts
    assert prompt.text == "<s>[system]Be brief.[user]1+1?[assistant]"
    assert prompt.tokens.count(BOS) == 1
    assert tokenizer.decode(prompt.tokens) == prompt.text
    assert prompt.messages == tuple(chat)
    assert prompt.answer == "2"
    assert prompt.row == {"prompt": chat, "answer": "2"}


def test_a_chat_without_a_template_is_an_error_that_names_the_row(make_tokenizer: Make) -> None:
    rows = rows_of({"prompt": "a"}, {"prompt": [{"role": "user", "content": "b"}]})
    with pytest.raises(DataError, match=r"d\.json row 2 has chat messages, but .* no chat template[^\0]*fix: use an"):
        encode(rows, make_tokenizer(chat_template=None))


def test_a_template_that_refuses_a_row_is_an_error_that_names_it(make_tokenizer: Make) -> None:
    rows = rows_of({"prompt": [{"role": "user", "content": "b"}]})
    with pytest.raises(DataError, match=r"d\.json row 1: .* refuses its messages: roles must alternate"):
        encode(rows, make_tokenizer(chat_template="{{ raise_exception('roles must alternate') }}"))


def test_a_task_has_a_plain_prompt_for_models_without_a_template(make_tokenizer: Make) -> None:
    rows = load_rows(DataSettings(dataset_path="task:arithmetic?rows=1"))
    (prompt,) = encode(rows, make_tokenizer(chat_template=None)).prompts
    question = f"What is {prompt.row['a']}+{prompt.row['b']}? Reply with only the number."
    assert prompt.text == question + "\n"
    assert prompt.messages == ({"role": "user", "content": question},)
    (templated,) = encode(rows, make_tokenizer()).prompts
    assert templated.text == f"<s>[user]{question}[assistant]"


def test_a_prompt_without_tokens_is_an_error_that_names_the_row(make_tokenizer: Make) -> None:
    rows = rows_of({"prompt": [{"role": "user", "content": "b"}]})
    with pytest.raises(DataError, match=r"d\.json row 1: the tokenizer makes no token"):
        encode(rows, make_tokenizer(chat_template="{# nothing #}"))


def test_prompts_over_the_limit_are_dropped_and_counted(make_tokenizer: Make) -> None:
    """One id per byte and one <s>: `abc` has 4 tokens, `abcd` has 5."""
    result = encode(strings("abcd", "abc", "abcde"), make_tokenizer(), max_prompt_tokens=4)
    assert [(prompt.index, prompt.text) for prompt in result.prompts] == [(1, "abc")]
    assert (result.rows_read, result.dropped_too_long) == (3, 2)
    assert result.notices() == ["dropped 2 prompts over max_prompt_tokens 4"]


def test_when_nothing_is_left_the_error_gives_rows_dropped_and_limit(make_tokenizer: Make) -> None:
    """B71: 2 rows of 5 and 6 tokens under a limit of 3."""
    with pytest.raises(DataError) as caught:
        encode(strings("abcd", "abcde"), make_tokenizer(), max_prompt_tokens=3)
    assert caught.value.problem == (
        "no prompts left: 2 rows read, 2 dropped as longer than max_prompt_tokens 3; the shortest prompt has 5 tokens"
    )
    assert caught.value.fix == "raise --max-prompt-tokens to 5 or more"
    with pytest.raises(DataError, match="0 rows were read"):
        encode([], make_tokenizer())


def test_the_same_problems_over_and_over_are_reported_and_kept(make_tokenizer: Make) -> None:
    """B72: 3 distinct prompts x 100. Nothing is left out in silence."""
    result = encode(strings("c", "a", "b") * 100, make_tokenizer())
    assert (result.rows_read, result.distinct, len(result.prompts), result.dropped_duplicates) == (300, 3, 300, 0)
    assert result.notices() == ["300 rows, 3 distinct problems: --dedup-prompts keeps one of each"]


def test_dedup_prompts_keeps_the_first_of_each_in_order(make_tokenizer: Make) -> None:
    """B72"""
    rows = strings(*["c", "a", "b"] * 100)
    result = encode([*rows[:1], *rows], make_tokenizer(), dedup_prompts=True)
    assert [prompt.text for prompt in result.prompts] == ["c", "a", "b"]
    assert (result.rows_read, result.distinct, result.dropped_duplicates) == (301, 3, 298)
    assert result.notices() == ["301 rows, 3 distinct problems: kept one of each"]


def test_rows_with_the_same_prompt_and_another_answer_are_distinct(make_tokenizer: Make) -> None:
    rows = rows_of(*({"prompt": "a", "answer": answer} for answer in ("1", "2", 1, True, None)))
    result = encode(rows, make_tokenizer(), dedup_prompts=True)
    assert [prompt.answer for prompt in result.prompts] == ["1", "2", 1, True, None]


def test_ordinary_data_needs_no_notice(make_tokenizer: Make) -> None:
    assert encode(strings("a", "b"), make_tokenizer(), dedup_prompts=True).notices() == []
