"""A function in a person's own file, named as `file.py[:function]`: found, imported, its exceptions put into words.

Importing runs the file's code, which is somebody else's: anything can come out of it.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from dapo.errors import DapoError
from dapo.wording import nearest

_FORM = "write it as file.py or file.py:function"


def split_path(spec: str) -> tuple[str, str | None]:
    """`file.py[:function]` as (absolute path, function or None); `~` is the home folder.

    A colon counts when a `.py` stands before it or a name follows it: `C:\\reward.py` has none that does.
    """
    path, colon, name = spec.rpartition(":")
    if not colon or not (path.endswith(".py") or name.isidentifier()):
        path, name = spec, ""
    return os.path.abspath(os.path.expanduser(path)), name or None


def load_function(
    path: str, name: str | None, *, defaults: Sequence[str], setting: str, error: type[DapoError]
) -> Callable[..., Any]:
    """Imports the file at `path`, absolute, and gives the function `name` in it.

    Without a name it is the first of `defaults` that the file has, else the only public function that it defines.
    The file's folder stays on the import path, so that the function finds its neighbours, also when it is called.
    Raises `error`, naming `setting`, when the file cannot be imported or has no such function.
    """
    module = _imported(path, setting, error)
    wanted = defaults if name is None else (name,)
    for each in wanted:
        function = getattr(module, each, None)
        if callable(function):
            return function
    public = _public_functions(module)
    if name is None and len(public) == 1:
        return getattr(module, public[0])
    there = f"it defines {', '.join(public)}" if public else "it defines no public function"
    raise error(
        f"{setting} names {path}, which has no function {' or '.join(map(repr, wanted))}; {there}",
        fix=_suggestion(path, wanted, public),
    )


def describe_exception(error: BaseException) -> str:
    """`ValueError: text (/a/file.py, line 3, in reward_fn: the line)`: the exception and its last frame."""
    kind = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename:
        return f"{kind}: {error.msg} ({error.filename}, line {error.lineno})"
    try:
        text = str(error)
    except Exception:  # the text of an exception can be somebody else's code, too
        text = "its own text cannot be made"
    said = f"{kind}: {text}" if text else kind
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return said
    last = frames[-1]
    place = f"{last.filename}, line {last.lineno}, in {last.name}"
    return f"{said} ({place}: {last.line})" if last.line else f"{said} ({place})"


def _imported(path: str, setting: str, error: type[DapoError]) -> ModuleType:
    folder, file = os.path.split(path)
    # A name of its own: a file may be called like a module that others import.
    module_spec = importlib.util.spec_from_file_location(f"user_file_{os.path.splitext(file)[0]}", path)
    if module_spec is None or module_spec.loader is None:
        raise error(f"{setting} names {path}, which is not a Python file", fix=_FORM)
    if not os.path.isfile(path):
        guess = nearest(file, _python_files(folder))
        fix = f"did you mean {os.path.join(folder, guess)}?" if guess else _FORM
        raise error(f"{setting} names {path}, which is not a file", fix=fix)
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module.__name__] = module  # dataclasses and pickle look a class's module up there
    if folder not in sys.path:
        sys.path.insert(0, folder)  # where a script finds its neighbours
    try:
        module_spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise  # the person's wish, not the file's fault
    except BaseException as raised:
        raise error(
            f"{setting} names {path}, which does not import: {describe_exception(raised)}",
            fix=f"make `python {path}` run without an error",
        ) from raised
    return module


def _python_files(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.name.endswith(".py") and entry.is_file()]
    except (OSError, ValueError):  # no such folder, no permission, a NUL in its name
        return []


def _public_functions(module: ModuleType) -> list[str]:
    """Names of the functions that the module itself defines, in its order."""
    return [
        key
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_")
    ]


def _suggestion(path: str, wanted: Sequence[str], public: Sequence[str]) -> str:
    if not public:
        return f"define {wanted[0]} in it"
    guesses = [guess for each in wanted if (guess := nearest(each, public)) is not None]
    return f"did you mean {path}:{guesses[0]}?" if guesses else f"name one of them, as {path}:function"
