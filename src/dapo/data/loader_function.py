"""Rows from a person's own Python function: `dataset_loader_fn = "file.py[:function]"`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from dapo.data.readers import RawRow
from dapo.errors import DataError
from dapo.user_file import describe_exception, load_function, split_path

DEFAULT_FUNCTION = "load_rows"


def rows_of_loader(spec: str, dataset_path: str | None) -> list[RawRow]:
    """Calls the function and takes the rows it returns, an iterable of mappings from column name to value.

    Called as `function(dataset_path)` if it has a parameter, else as `function()`. Without a function name in
    `spec` it is `load_rows`, or the only public function that the file defines.
    """
    file, name = split_path(spec)
    function = load_function(file, name, defaults=(DEFAULT_FUNCTION,), setting="dataset_loader_fn", error=DataError)
    arguments = _arguments(function, spec, dataset_path)
    rows = []
    try:
        for number, row in enumerate(function(*arguments), start=1):
            if not isinstance(row, Mapping):
                raise DataError(
                    f"{spec} row {number} is of type {type(row).__name__}, not a mapping",
                    fix='let the function return rows such as {"prompt": ..., "answer": ...}',
                )
            rows.append(RawRow(f"row {number}", dict(row)))
    except (DataError, KeyboardInterrupt):
        raise
    except BaseException as error:  # somebody else's code: anything can come out of it
        raise DataError(f"{spec} failed: {describe_exception(error)}", fix=f"mend {file}") from error
    if not rows:
        raise DataError(f"{spec} returned no rows", fix="let it return at least one row with a prompt")
    return rows


def _arguments(function: Callable[..., Any], spec: str, dataset_path: str | None) -> list[str]:
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        if dataset_path is not None:
            raise DataError(
                f"dataset_path is {dataset_path} but {spec} takes no parameter, so it would be ignored",
                fix="leave dataset_path out, or give the function a parameter for it",
            )
        return []
    first, *others = parameters
    positional = (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD, first.VAR_POSITIONAL)
    needed = [each.name for each in others if each.default is each.empty and each.kind in positional[:2]]
    if first.kind not in positional or needed:
        raise DataError(
            f"{spec} takes ({', '.join(each.name for each in parameters)})",
            fix="let it take the dataset path only, or nothing",
        )
    if dataset_path is not None:
        return [dataset_path]
    if first.default is first.empty and first.kind is not first.VAR_POSITIONAL:
        raise DataError(f"{spec} takes {first.name} but dataset_path is not set", fix="set dataset_path")
    return []
