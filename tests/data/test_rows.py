"""Rows of every schema come out in one shape, and a bad one is named by its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapo.data import DataSettings, Row, load_rows
from dapo.data.readers import RawRow
from dapo.data.rows import check_row
from dapo.errors import DataError

CHAT = [{"role": "system", "content": ""}, {"role": "user", "content": "1+1?"}]


def check(**columns: Any) -> Row:
    return check_row(RawRow("line 31", columns), 30, "d.jsonl")


def problem(**columns: Any) -> str:
    with pytest.raises(DataError) as caught:
        check(**columns)
    assert caught.value.fix
    assert caught.value.problem.startswith("d.jsonl line 31")
    return str(caught.value)


def test_a_string_and_a_chat_are_both_prompts() -> None:
    """B73"""
    assert check(prompt="1+1?").prompt == "1+1?"
    assert check(prompt=CHAT).prompt == tuple(CHAT)


def test_a_row_knows_its_index_place_and_all_its_columns() -> None:
    row = check(prompt="a", source="book")
    assert (row.index, row.place, row.columns) == (30, "d.jsonl line 31", {"prompt": "a", "source": "book"})


@pytest.mark.parametrize("answer", [0, 0.0, False, ""])
def test_a_falsy_answer_is_an_answer(answer: Any) -> None:
    """B48: the other columns must not take over from a value that happens to be falsy."""
    row = check(prompt="a", answer=answer, solutions=["7"], reward_model={"ground_truth": "8"})
    assert row.answer == answer
    assert type(row.answer) is type(answer)


def test_the_answer_comes_from_the_first_column_that_is_not_null() -> None:
    graded = {"ground_truth": 0, "style": "rule"}
    assert check(prompt="a", answer=None, solutions=["7", "7.0"], reward_model=graded).answer == ["7", "7.0"]
    assert check(prompt="a", answer=None, solutions=None, reward_model=graded).answer == 0
    assert check(prompt="a").answer is None


def test_arrays_of_loader_functions_become_lists() -> None:
    row = check(prompt=np.array(CHAT, dtype=object), solutions=np.array([1, 2]))
    assert row.prompt == tuple(CHAT)
    assert row.answer == [1, 2]
    assert check(prompt="a", answer=np.float32(0.5)).answer == 0.5


def test_keys_that_a_columnar_file_filled_with_null_are_no_keys_of_the_message() -> None:
    row = check(prompt=[{"role": "user", "content": "a", "tool_calls": None}])
    assert row.prompt == ({"role": "user", "content": "a"},)


def test_a_row_without_a_prompt_lists_its_columns_and_the_nearest() -> None:
    message = problem(promt="a", answer="1")
    assert "has no prompt; its columns: promt, answer" in message
    assert "rename 'promt' to 'prompt'" in message


@pytest.mark.parametrize(
    "text",
    [
        '[{"role": "system", "content": ""}, {"role": "user", "content": "1+1?"}]',
        ' [\n  {"content": "", "role": "system"},\n  {"content": "1+1?", "role": "user"}\n]\n',
        "[{'role': 'system', 'content': ''}, {'role': 'user', 'content': '1+1?'}]",  # as a table writes a Python list
    ],
)
def test_a_chat_that_a_table_holds_as_text_is_read_as_a_chat(text: str) -> None:
    assert check(prompt=text).prompt == tuple(CHAT)


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2, 3] sorted is",
        '[{"price": 3}] as yaml is',
        '[{"price": 3}]',
        '{"role": "admin", "content": 7} as yaml is',
        'Repeat [{"role": "user", "content": "a"}]',
    ],
)
def test_text_that_only_holds_brackets_stays_text(text: str) -> None:
    assert check(prompt=text).prompt == text


def test_the_text_parts_of_a_content_are_joined_as_templates_join_them() -> None:
    parts = [{"type": "text", "text": "1+"}, {"type": "text", "text": "1?", "image": None}]
    assert check(prompt=[{"role": "user", "content": parts}]).prompt == ({"role": "user", "content": "1+1?"},)
    assert check(prompt=[{"role": "user", "content": ["1+", "1?"]}]).prompt == ({"role": "user", "content": "1+1?"},)


def test_a_csv_file_of_chats_in_json_is_read_as_chats(tmp_path: Path) -> None:
    table = tmp_path / "d.csv"
    table.write_text('prompt,answer\n"[{""role"": ""user"", ""content"": ""1+1?""}]",2\n1+1=,2\n')
    chat, text = load_rows(DataSettings(dataset_path=str(table)))
    assert (chat.prompt, text.prompt) == (({"role": "user", "content": "1+1?"},), "1+1=")


BAD_PROMPTS = {
    "null": (None, "prompt is null"),
    "number": (7, "prompt is of type int"),
    "object": ({"role": "user", "content": "a"}, "prompt is of type dict"),
    "empty": ("", "empty prompt"),
    "blank": (" \n", "empty prompt"),
    "no messages": ([], "prompt is an empty list"),
    "strings": (["a"], "message 1 of the prompt is of type str"),
    "no role": ([CHAT[1], {"content": "a"}], "message 2 of the prompt has no role"),
    "no content": ([{"role": "user"}], "message 1 of the prompt has no content"),
    "a part without text": ([{"role": "user", "content": [{"type": "text"}]}], "list whose part 1 is no text"),
    "a picture": (
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "text": "b"}]}],
        "message 1 of the prompt has a content of type list whose part 2 is no text",
    ),
    "half a chat as text": (
        '[{"role": "user", "content": "a"',
        "looks like a list of chat messages but cannot be read",
    ),
    "a single message as text": ('{"role": "user", "content": "a"}', "prompt is of type dict"),
    "a chat as text without a role": ('[{"role": "", "content": "a"}]', "message 1 of the prompt has an empty role"),
    "null content": ([{"role": "user", "content": None}], "message 1 of the prompt has a content of type NoneType"),
    "empty role": ([{"role": "", "content": "a"}], "message 1 of the prompt has an empty role"),
    "all blank": ([{"role": "user", "content": " "}], "empty prompt"),
    "surrogate": ("\ud83d", "half of a surrogate pair"),
    "surrogate in chat": ([{"role": "user", "content": "\ud83d"}], "half of a surrogate pair"),
}


@pytest.mark.parametrize("case", BAD_PROMPTS)
def test_a_prompt_that_no_model_can_read_is_named(case: str) -> None:
    prompt, reason = BAD_PROMPTS[case]
    assert reason in problem(prompt=prompt)


def test_a_reward_model_that_is_no_object_is_named_only_when_it_is_needed() -> None:
    assert "reward_model is of type str" in problem(prompt="a", reward_model="rule")
    assert check(prompt="a", reward_model="rule", answer="7").answer == "7"


def test_the_answer_may_stand_in_a_column_of_its_own_called_ground_truth() -> None:
    assert check(prompt="a", ground_truth="7").answer == "7"
    assert check(prompt="a", ground_truth="7", reward_model={"style": "rule"}).answer == "7"
    assert check(prompt="a", ground_truth="7", reward_model={"ground_truth": 0}).answer == 0


@pytest.mark.parametrize("text", ['{"ground_truth": "34", "style": "rule"}', "{'ground_truth': '34', 'style': 'rule'}"])
def test_objects_that_a_table_holds_as_text_are_read_as_objects(text: str) -> None:
    row = check(prompt="a", reward_model=text, extra_info='{"index": 3}', note='{"index": 3}')
    assert row.answer == "34"
    assert row.columns["reward_model"] == {"ground_truth": "34", "style": "rule"}
    assert row.columns["extra_info"] == {"index": 3}
    assert row.columns["note"] == '{"index": 3}'


def test_nesting_without_end_is_named() -> None:
    deep: list[Any] = []
    for _ in range(2000):
        deep = [deep]
    assert "nested too deeply" in problem(prompt="a", answer=deep)


def test_a_bad_row_far_down_is_named_by_its_physical_line(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    good = json.dumps({"prompt": "a"}) + "\n"
    path.write_text("\n" + good * 9_999 + '{"answer": "1"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"d\.jsonl line 10001 has no prompt; its columns: answer"):
        load_rows(DataSettings(dataset_path=str(path)))


def write_math_parquet(path: Path, problems: int, repeats: int) -> None:
    """The schema that DAPO-Math-17k and AIME-2024 are published in."""
    rows = [
        {
            "data_source": "math_dapo",
            "prompt": [{"content": f"What is {number} + {number}?", "role": "user"}],
            "ability": "MATH",
            "reward_model": {"ground_truth": str(2 * number), "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": number, "raw_problem": f"What is {number} + {number}?", "split": None},
        }
        for _ in range(repeats)
        for number in range(problems)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)


def test_the_schema_of_dapo_math_and_aime_is_read(tmp_path: Path) -> None:
    write_math_parquet(tmp_path / "d.parquet", problems=3, repeats=2)
    rows = load_rows(DataSettings(dataset_path=str(tmp_path / "d.parquet")))
    assert [row.answer for row in rows] == ["0", "2", "4", "0", "2", "4"]
    assert rows[5].prompt == ({"content": "What is 2 + 2?", "role": "user"},)
    assert rows[5].index == 5
    assert rows[5].place.endswith("d.parquet row 6")
    assert rows[5].columns["data_source"] == "math_dapo"
    assert rows[5].columns["extra_info"] == {"index": 2, "raw_problem": "What is 2 + 2?", "split": None}
