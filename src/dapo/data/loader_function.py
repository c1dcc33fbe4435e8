"""Rows from a person's own Python function: `dataset_loader_fn = "file.py[:function]"`."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from dapo.data.readers import RawRow
from dapo.data.wording import nearest
from dapo.errors import DataError

DEFAULT_FUNCTION = "load_rows"


def rows_of_loader(spec: str, dataset_path: str | None) -> list[RawRow]:
    """Calls the function and takes the rows it returns, an iterable of mappings from column name to value.

    Called as `function(dataset_path)` if it has a parameter, else as `function()`. Without a function name in
    `spec` it is `load_rows`, or the only public function that the file defines.
    """
    file, name = _split(spec)
    function = _find(_import(file), file, name)
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
    except DataError:
        raise
    except (Exception, SystemExit) as error:  # somebody else's code: anything can come out of it
        raise DataError(f"{spec} failed: {_last_words(error)}", fix=f"mend {file}") from error
    if not rows:
        raise DataError(f"{spec} returned no rows", fix="let it return at least one row with a prompt")
    return rows


def _split(spec: str) -> tuple[Path, str | None]:
    file, _, name = spec.rpartition(":")
    if not file.endswith(".py"):
        file, name = spec, ""
    if not file.endswith(".py"):
        raise DataError(f"dataset_loader_fn is {spec!r}", fix="write it as file.py or file.py:function")
    return Path(file).expanduser(), name or None


def _import(file: Path) -> ModuleType:
    if not file.is_file():
        folder = file.parent
        guess = nearest(file.name, (each.name for each in folder.iterdir())) if folder.is_dir() else None
        fix = f"did you mean {folder / guess}?" if guess else "check dataset_loader_fn"
        raise DataError(f"dataset_loader_fn: {file} does not exist", fix=fix)
    module_spec = importlib.util.spec_from_file_location(f"dapo_dataset_loader_{file.stem}", file)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module.__name__] = module  # dataclasses and pickle look a class's module up there
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # somebody else's code: anything can come out of it
        raise DataError(f"{file} does not import: {_last_words(error)}", fix=f"mend {file}") from error
    return module


def _find(module: ModuleType, file: Path, name: str | None) -> Callable[..., Any]:
    own = {
        key: value
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_")
    }
    if name is None and DEFAULT_FUNCTION not in own and len(own) == 1:
        return next(iter(own.values()))
    wanted = name or DEFAULT_FUNCTION
    function = getattr(module, wanted, None)
    if callable(function):
        return function
    guess = nearest(wanted, own)
    known = ", ".join(sorted(own)) or "none"
    fix = f"did you mean {file}:{guess}?" if guess else f"name one of them: {file}:<function>"
    raise DataError(
        f"{file} has no function {wanted}; functions in it: {known}",
        fix=fix if own else f"define {wanted}() in it",
    )


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


def _last_words(error: BaseException) -> str:
    """The error and the line it came from, such as `KeyError: 'x' (loader.py line 3)`."""
    words = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    if isinstance(error, SyntaxError):
        return words
    frames = traceback.extract_tb(error.__traceback__)
    return f"{words} ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else words
