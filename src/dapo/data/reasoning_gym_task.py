"""Problems of the `reasoning-gym` package: `task:reasoning_gym/<name>?rows=500&<config key>=<value>`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from dapo.data.question import question_row
from dapo.data.rows import Row
from dapo.data.task_query import DEFAULT_ROWS, TaskQuery, part_of
from dapo.errors import DataError
from dapo.wording import first_line, nearest

_HELD_OUT_PART = 0


def reasoning_gym_rows(name: str, query: TaskQuery) -> list[Row]:
    """The generator's question as a user message, its answer as the answer, its metadata as a column.

    Keys other than rows, split and seed go to the generator's configuration as int, float, true/false or text.
    A question is held out by its own text, so train and heldout are disjoint even where questions repeat.
    """
    wanted = query.rows or DEFAULT_ROWS
    # Held-out questions are one in five; twice that many tries leave room for chance.
    tries = wanted * 10 + 100
    try:
        rows: list[Row] = []
        for entry in _entries(name, query, tries):
            if len(rows) == wanted:
                break
            held_out = part_of(entry["question"]) == _HELD_OUT_PART
            if query.split == "all" or held_out == (query.split == "heldout"):
                rows.append(_row(query, len(rows), entry))
    except DataError:
        raise
    except Exception as error:  # generators check their configuration late, with errors of every kind
        raise DataError(f"{query.task}: the generator failed: {first_line(error)}", fix="check its settings") from error
    if len(rows) < wanted:
        raise DataError(
            f"{query.task}: only {len(rows)} of {wanted} rows are in the split {query.split} after {tries} tries",
            fix=f"ask for rows={max(len(rows), 1)} or harder problems",
        )
    return rows


def _entries(name: str, query: TaskQuery, tries: int) -> Iterator[dict[str, Any]]:
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise DataError(
            f"{query.task} needs the package reasoning-gym", fix='pip install "dapo-rl[reasoning-gym]"'
        ) from error
    if name not in DATASETS:
        guess = nearest(name, DATASETS)
        fix = f"did you mean task:reasoning_gym/{guess}?" if guess else f"use one of {', '.join(sorted(DATASETS))}"
        raise DataError(f"reasoning-gym has no task {name!r}", fix=fix)
    known = {field.name for field in dataclasses.fields(DATASETS[name][1])} - {"size", "seed"}
    unknown = query.others.keys() - known
    if unknown:
        raise DataError(
            f"{query.task}: unknown key {min(unknown)!r}",
            fix=f"the keys are rows, split, seed, {', '.join(sorted(known))}",
        )
    config = {key: _value(text) for key, text in query.others.items()}
    problems = reasoning_gym.create_dataset(name, size=tries, seed=query.seed, **config)
    return (problems[number] for number in range(tries))


def _value(text: str) -> int | float | bool | str:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _row(query: TaskQuery, index: int, entry: Mapping[str, Any]) -> Row:
    return question_row(query, index, entry["question"], entry["answer"], entry)
