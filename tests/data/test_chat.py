"""The assistant's last turn is left open behind its very last character, whatever the template does to contents."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from dapo.data.chat import prints_the_time, render_chat
from dapo.data.readers import RawRow
from dapo.data.rows import check_row
from dapo.errors import DataError

Make = Callable[..., Any]
NOW = datetime(2025, 1, 31, 23, 59)
BEGUN = "Let me solve this step by step.\n<think>"

PLAIN = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TRIMMING = PLAIN.replace("message.content", "message.content | trim")  # Llama 3
WITHOUT_THOUGHTS = PLAIN.replace("message.content", "message.content.split('</think>')[-1]")  # DeepSeek R1
OPENS_A_THOUGHT = PLAIN.replace("assistant\\n{% endif", "assistant\\n<think>\\n{% endif")  # QwQ
NEVER_OPENS = PLAIN[: PLAIN.index("{% if add")]
EMPTY_THOUGHT = (  # Qwen 3
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.role == 'assistant' %}<think>\n\n</think>\n\n{% endif %}"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHANNELS = EMPTY_THOUGHT.replace("<think>\n\n</think>\n\n", "<|channel|>final<|message|>")  # gpt-oss
OPENED = "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"


def render(make: Make, template: str, *turns: tuple[str, Any], now: datetime = NOW) -> str:
    messages = [{"role": role, "content": content} for role, content in turns]
    row = check_row(RawRow("row 1", {"prompt": messages}), 0, "d.json")
    assert not isinstance(row.prompt, str)
    return render_chat(row.prompt, row.place, make(chat_template=template), now)


@pytest.mark.parametrize(
    "content", [BEGUN, "", "  So\n\n", "<think>\na\n</think>\nb", [{"type": "text", "text": BEGUN}]]
)
@pytest.mark.parametrize("template", [PLAIN, TRIMMING, WITHOUT_THOUGHTS, NEVER_OPENS, EMPTY_THOUGHT, OPENS_A_THOUGHT])
def test_a_begun_answer_is_continued_and_not_closed(make_tokenizer: Make, template: str, content: Any) -> None:
    begun = content if isinstance(content, str) else BEGUN
    assert render(make_tokenizer, template, ("user", "1+1?"), ("assistant", content)) == OPENED + begun


def test_what_a_template_writes_at_the_head_of_every_answer_stays(make_tokenizer: Make) -> None:
    text = render(make_tokenizer, CHANNELS, ("user", "1+1?"), ("assistant", BEGUN))
    assert text == OPENED + "<|channel|>final<|message|>" + BEGUN


def test_a_turn_of_the_user_is_answered_in_a_new_turn(make_tokenizer: Make) -> None:
    turns = ("user", "1+1?"), ("assistant", "2"), ("user", "2+2?")
    assert render(make_tokenizer, PLAIN, *turns) == (
        OPENED + "2<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_chat_of_nothing_but_a_begun_answer_is_continued(make_tokenizer: Make) -> None:
    for template in (PLAIN, EMPTY_THOUGHT):
        assert render(make_tokenizer, template, ("assistant", "Once")).endswith("Once")


def test_a_template_that_leaves_the_begun_answer_out_or_repeats_it_is_refused_by_row(make_tokenizer: Make) -> None:
    leaves_out = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    repeats = "{{ messages[-1].content }}" + PLAIN
    for template in (leaves_out, repeats):
        with pytest.raises(DataError, match=r"d\.json row 1 ends with an assistant's turn, .* cannot be continued"):
            render(make_tokenizer, template, ("user", "1+1?"), ("assistant", BEGUN))


def test_a_last_turn_that_calls_a_tool_is_refused_by_row(make_tokenizer: Make) -> None:
    turn = {"role": "assistant", "content": "", "tool_calls": [{"name": "add"}]}
    with pytest.raises(DataError, match=r"d\.json row 1: the last message calls a tool"):
        render_chat([{"role": "user", "content": "a"}, turn], "d.json row 1", make_tokenizer(), NOW)


@pytest.mark.parametrize(
    ("asks", "date"),
    [
        (
            '{% if not date_string is defined %}{% set date_string = strftime_now("%d %b %Y") %}{% endif %}',
            "31 Jan 2025",
        ),
        ("{% set date_string = strftime_now('%B %d, %Y') %}", "January 31, 2025"),
    ],
    ids=["Llama 3.2", "Granite"],
)
def test_a_template_that_prints_the_date_is_told_the_given_one(make_tokenizer: Make, asks: str, date: str) -> None:
    template = asks + "{{ date_string }}" + PLAIN
    assert render(make_tokenizer, template, ("user", "1+1?")) == date + OPENED
    assert render(make_tokenizer, template, ("user", "1+1?"), ("assistant", "So")) == date + OPENED + "So"
    assert prints_the_time(make_tokenizer(chat_template=template))
    assert not prints_the_time(make_tokenizer(chat_template=PLAIN))
    assert not prints_the_time(make_tokenizer(chat_template=None))
