"""Demonstrations: prompt and solution encoded apart, the end token once, long ones dropped and counted."""

from __future__ import annotations

from typing import Any

import pytest

from dapo.data.demonstrations import check_solutions, encode_demonstrations
from dapo.data.prompts import encode_prompts
from dapo.data.readers import RawRow
from dapo.data.rows import Row, check_row
from dapo.data.settings import DataSettings
from dapo.errors import DataError, ModelError
from dapo.models.new_model import byte_tokenizer

BYTES = byte_tokenizer(512)
EOS = 256


def rows(*columns: dict[str, Any]) -> list[Row]:
    return [check_row(RawRow(f"line {n}", one), n - 1, "d.jsonl") for n, one in enumerate(columns, start=1)]


def encode(*columns: dict[str, Any], key: str = "solution", tokenizer: Any = BYTES, max_tokens: int = 512) -> Any:
    of_rows = rows(*columns)
    check_solutions(of_rows, key)
    prompts = encode_prompts(of_rows, DataSettings(dataset_path="d.jsonl"), tokenizer).prompts
    return encode_demonstrations(prompts, key, tokenizer, max_tokens, source="d.jsonl")


def test_a_demonstration_is_prompt_tokens_then_answer_tokens_then_the_end() -> None:
    (one,) = encode({"prompt": "2+", "solution": "2é"}).demonstrations
    assert one.prompt.tokens == (50, 43)
    assert one.completion.tokens == (50, 0xC3, 0xA9, EOS)
    assert one.completion.text == "2é"
    assert one.completion.logprobs == (0.0, 0.0, 0.0, 0.0)
    assert not one.completion.truncated


def test_prompt_and_solution_are_encoded_apart(tokenizer: Any) -> None:
    """A tokenizer that would join `1` and `2` into one token across the border must not: generation never sees it."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    fast = Tokenizer(models.BPE({"1": 0, "2": 1, "12": 2, "</s>": 3}, [("1", "2")]))
    joining = PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="</s>")
    assert joining("12")["input_ids"] == [2]
    (one,) = encode({"prompt": "1", "solution": "2"}, tokenizer=joining).demonstrations
    assert (one.prompt.tokens, one.completion.tokens) == ((0,), (1, 3))


@pytest.mark.parametrize("solution", ["2é", "2é{end}", "2é{end}{end}", "2é{end}\n", "2é{end} \n{end}\n"])
def test_an_answer_ends_with_one_end_token_however_often_it_was_written(solution: str) -> None:
    (one,) = encode({"prompt": "a", "solution": solution.format(end=BYTES.eos_token)}).demonstrations
    assert one.completion.tokens == (50, 0xC3, 0xA9, EOS)
    assert one.completion.text == "2é"


def test_white_space_at_the_end_of_an_answer_is_learned_as_it_stands() -> None:
    (one,) = encode({"prompt": "a", "solution": "2 \n"}).demonstrations
    assert one.completion.tokens == (50, 32, 10, EOS)


def test_the_solution_gets_no_token_in_front_and_one_end_token_behind() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    fast = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "a": 2}, unk_token="a"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    fast.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    closing = PreTrainedTokenizerFast(tokenizer_object=fast, bos_token="<s>", eos_token="</s>")
    plain, ended = encode(
        {"prompt": "a", "solution": "a a"}, {"prompt": "a", "solution": "a a </s>"}, tokenizer=closing
    ).demonstrations
    assert plain.prompt.tokens == (0, 2)
    assert plain.completion.tokens == ended.completion.tokens == (2, 2, 1)


def test_a_chat_prompt_goes_through_the_template(tokenizer: Any, ids: Any) -> None:
    messages = [{"role": "user", "content": "hi"}]
    (one,) = encode({"prompt": messages, "solution": "yes"}, tokenizer=tokenizer).demonstrations
    assert one.prompt.tokens == ids("[user]hi[assistant]")
    assert one.completion.tokens == (*ids("yes"), tokenizer.eos_token_id)


def test_the_column_is_the_one_that_is_named() -> None:
    (one,) = encode({"prompt": "a", "solution": "no", "work": "yes"}, key="work").demonstrations
    assert one.completion.text == "yes"


def test_demonstrations_over_the_limit_are_dropped_and_counted() -> None:
    """Prompt 1 byte, answers 2 and 3 bytes and the end: 4 and 5 tokens."""
    columns = ({"prompt": "a", "solution": "xy"}, {"prompt": "b", "solution": "xyz"})
    both, one = encode(*columns, max_tokens=5), encode(*columns, max_tokens=4)
    assert (len(both.demonstrations), both.dropped_too_long, both.notices()) == (2, 0, [])
    assert [each.prompt.text for each in one.demonstrations] == ["a"]
    assert one.notices() == ["d.jsonl: dropped 1 demonstration over max_tokens 4"]
    with pytest.raises(DataError, match=r"all 2 have more than 3 tokens \(max_tokens\); the shortest has 4"):
        encode(*columns, max_tokens=3)


@pytest.mark.parametrize(
    ("columns", "problem", "fix"),
    [
        (
            {"prompt": "a", "answer": "7", "worked": "3+4=7"},
            "d.jsonl line 2 has no solution: there is no column 'solution', only prompt, answer, worked",
            "name the column with the answers by --solution-key, such as answer or worked",
        ),
        ({"prompt": "a"}, "d.jsonl line 2 has no solution: there is no column 'solution', only prompt", "--solution-k"),
        ({"prompt": "a", "solution": None}, "d.jsonl line 2 has no solution: its solution is empty", "remove the row"),
        ({"prompt": "a", "solution": ""}, "d.jsonl line 2 has no solution: its solution is empty", "remove the row"),
        (
            {"prompt": "a", "solution": 7},
            "d.jsonl line 2 has no solution: its solution is of type int, not a text",
            "write the answer there",
        ),
        (
            {"prompt": "a", "solution": ["7"]},
            "d.jsonl line 2 has no solution: its solution is of type list, not a text",
            "write the answer there",
        ),
    ],
)
def test_a_row_without_a_solution_is_named(columns: dict[str, Any], problem: str, fix: str) -> None:
    with pytest.raises(DataError) as refused:
        check_solutions(rows({"prompt": "good", "solution": "yes"}, columns), "solution")
    assert refused.value.problem == problem
    assert fix in str(refused.value.fix)


def test_a_solution_that_no_tokenizer_can_take_is_named() -> None:
    with pytest.raises(DataError, match="row 1: the model's tokenizer cannot take its solution"):
        encode({"prompt": "a", "solution": "x"}, {"prompt": "b", "solution": "half \ud83d"})


def test_a_tokenizer_without_an_end_token_is_refused() -> None:
    endless = byte_tokenizer(512)
    endless.eos_token = None
    with pytest.raises(ModelError, match="no end token"):
        encode({"prompt": "a", "solution": "x"}, tokenizer=endless)
