"""The rows of the tasks that ask a chat model in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dapo.data.rows import Row
from dapo.data.task_query import TaskQuery


def question_row(query: TaskQuery, index: int, question: str, answer: Any, columns: Mapping[str, Any]) -> Row:
    """The question as a user's message; a model without chat template gets it as a line of text.

    index: of the problem in the task, from 0. columns: what the row has beside prompt and answer.
    """
    messages = ({"role": "user", "content": question},)
    place = f"{query.task} row {index + 1}"
    whole = {"prompt": list(messages), "answer": answer, **columns}
    return Row(index, place, messages, answer, whole, plain_prompt=question + "\n")
