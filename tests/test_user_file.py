"""A function in a person's own file is found, or the reason why not is told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dapo.errors import DataError, RewardError
from dapo.user_file import describe_exception, load_function, split_path

DEFAULTS = ("first", "second")


@pytest.fixture(autouse=True)
def _import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "own.py"


def load(file: Path, name: str | None = None) -> Callable[..., Any]:
    return load_function(str(file), name, defaults=DEFAULTS, setting="own_fn", error=DataError)


def refusal(file: Path, name: str | None = None) -> DataError:
    with pytest.raises(DataError) as caught:
        load(file, name)
    assert caught.value.problem.startswith(f"own_fn names {file}, which ")
    return caught.value


@pytest.mark.parametrize(
    ("spec", "path", "name"),
    [
        ("/a/r.py", "/a/r.py", None),
        ("/a/r.py:score", "/a/r.py", "score"),
        ("/a/r.py:", "/a/r.py", None),
        ("/a/r.py:my-score", "/a/r.py", "my-score"),  # so that the function is told to be missing, not the file
        ("/a/r:score", "/a/r", "score"),
        ("/a:b/r.py", "/a:b/r.py", None),
        ("/a:b/r.py:score", "/a:b/r.py", "score"),
        ("/a/../r.py", "/r.py", None),
        ("~nobody-of-this-name/r.py", os.path.abspath("~nobody-of-this-name/r.py"), None),
    ],
)
def test_a_function_stands_after_the_last_colon(spec: str, path: str, name: str | None) -> None:
    assert split_path(spec) == (path, name)


def test_a_relative_path_starts_at_the_working_folder_and_a_tilde_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert split_path("sub/r.py:f") == (f"{tmp_path}/sub/r.py", "f")
    assert split_path("~/r.py") == ("/home/somebody/r.py", None)


SEVERAL = "def other(): return 'other'\ndef second(): return 'second'\n"


@pytest.mark.parametrize(
    ("source", "name", "returned"),
    [
        (SEVERAL, None, "second"),
        (SEVERAL, "other", "other"),
        (SEVERAL + "def first(): return 'first'\n", None, "first"),  # the order of the defaults, not of the file
        (SEVERAL + "first = 'no function'\n", None, "second"),
        ("from math import sqrt\ndef _helper(): 0\ndef mine(): return 'mine'\n", None, "mine"),
        ("def mine(): return 'mine'\nfirst = lambda: 'first'\n", None, "first"),
        ("class Own:\n    def __call__(self): return 'object'\nsecond = Own()\n", None, "object"),
        ("def _hidden(): return 'hidden'\n", "_hidden", "hidden"),
    ],
)
def test_the_function_is_the_named_one_or_a_default_or_the_only_one(
    file: Path, source: str, name: str | None, returned: str
) -> None:
    file.write_text(source)
    assert load(file, name)() == returned


@pytest.mark.parametrize(
    ("source", "name", "problem", "fix"),
    [
        (
            "def one(): 0\ndef two(): 0\n",
            None,
            "has no function 'first' or 'second'; it defines one, two",
            "as {}:function",
        ),
        ("def one(): 0\ndef scond(): 0\n", None, "it defines one, scond", "did you mean {}:scond?"),
        ("def mine(): 0\n", "yours", "has no function 'yours'; it defines mine", "name one of them, as {}:function"),
        ("def mine(): 0\n", "Mnie", "has no function 'Mnie'; it defines mine", "did you mean {}:mine?"),
        ("value = 1\n", "value", "has no function 'value'; it defines no public function", "define value in it"),
        ("from math import sqrt\n", None, "it defines no public function", "define first in it"),
    ],
)
def test_a_missing_function_is_told_with_what_there_is(
    file: Path, source: str, name: str | None, problem: str, fix: str
) -> None:
    file.write_text(source)
    error = refusal(file, name)
    assert problem in error.problem
    assert fix.format(file) in str(error.fix)


def test_a_missing_file_suggests_the_nearest_python_file_beside_it(file: Path) -> None:
    file.write_text("")
    file.with_name("won.pyc").write_text("")
    error = refusal(file.with_name("won.py"))
    assert error.problem.endswith("which is not a file")
    assert error.fix == f"did you mean {file}?"


@pytest.mark.parametrize("place", ["own.py", "nowhere/own.py", "nul\0/own.py"])
def test_a_file_that_is_not_there_and_like_no_other_tells_the_form(tmp_path: Path, place: str) -> None:
    error = refusal(tmp_path / place)
    assert error.problem.endswith("which is not a file")
    assert error.fix == "write it as file.py or file.py:function"


def test_a_folder_is_no_file_and_not_suggested_in_its_own_place(file: Path) -> None:
    file.mkdir()
    assert refusal(file).fix == "write it as file.py or file.py:function"


@pytest.mark.parametrize("name", ["own.txt", "own"])
def test_what_is_no_python_file_tells_the_form(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("def first(): 0\n")
    error = refusal(tmp_path / name)
    assert error.problem.endswith("which is not a Python file")
    assert error.fix == "write it as file.py or file.py:function"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("x = 1\ndef first(:\n", "SyntaxError: invalid syntax ({}, line 2)"),
        (
            "\nimport nothing_of_that_name\n",
            "No module named 'nothing_of_that_name' ({}, line 2, in <module>: import no",
        ),
        ("raise SystemExit(3)\n", "SystemExit: 3 ({}, line 1, in <module>: raise SystemExit(3))"),
        ("class Panic(BaseException): 0\nraise Panic('late')\n", "Panic: late ({}, line 2, in <module>: raise Pan"),
        ("def first(): 0\n\0", "SyntaxError: source code string cannot contain null bytes"),
    ],
)
def test_a_file_that_does_not_import_tells_the_exception_and_its_line(file: Path, source: str, reason: str) -> None:
    file.write_text(source)
    error = refusal(file)
    assert f"which does not import: {reason.format(file)}" in error.problem.replace("ModuleNotFoundError: ", "")
    assert error.fix == f"make `python {file}` run without an error"


def test_ctrl_c_while_a_file_imports_is_not_taken_for_its_fault(file: Path) -> None:
    file.write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load(file)


def test_the_error_is_of_the_kind_that_the_caller_asked_for(file: Path) -> None:
    with pytest.raises(RewardError, match="other_fn names"):
        load_function(str(file), None, defaults=DEFAULTS, setting="other_fn", error=RewardError)


def test_a_file_finds_its_neighbours_when_imported_and_when_called(file: Path) -> None:
    file.with_name("neighbour_at_import.py").write_text("VALUE = 1\n")
    file.with_name("neighbour_at_call.py").write_text("VALUE = 2\n")
    file.write_text(
        "from neighbour_at_import import VALUE\n"
        "def first():\n    import neighbour_at_call\n    return VALUE, neighbour_at_call.VALUE\n"
    )
    assert load(file)() == (1, 2)
    assert load(file)() == (1, 2)
    assert sys.path.count(str(file.parent)) == 1


def test_a_file_named_like_a_known_module_neither_gets_nor_replaces_it(tmp_path: Path) -> None:
    own = tmp_path / "json.py"
    own.write_text("def first(): return 'own'\n")
    before = sys.modules["json"]
    assert load(own)() == "own"
    assert sys.modules["json"] is before


def test_a_file_may_define_dataclasses_and_pickle_them(file: Path) -> None:
    file.write_text(
        "from __future__ import annotations\nimport pickle\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Point:\n    x: int\n"
        "def first(): return pickle.loads(pickle.dumps(Point(3))).x\n"
    )
    assert load(file)() == 3


def raised(action: Callable[[], object]) -> BaseException:
    try:
        action()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_an_exception_is_described_with_its_last_frame(file: Path) -> None:
    file.write_text("def first():\n    return inner('seven')\n\ndef inner(text):\n    return int(text)\n")
    reason = "ValueError: invalid literal for int() with base 10: 'seven'"
    assert describe_exception(raised(load(file))) == f"{reason} ({file}, line 5, in inner: return int(text))"


def test_an_exception_without_text_or_frames_or_source_is_described_by_what_it_has() -> None:
    assert describe_exception(TimeoutError()) == "TimeoutError"
    assert describe_exception(KeyError("a")) == "KeyError: 'a'"
    assert describe_exception(SyntaxError("not like this")) == "SyntaxError: not like this"
    nowhere = raised(lambda: exec("1 / 0"))
    assert describe_exception(nowhere) == "ZeroDivisionError: division by zero (<string>, line 1, in <module>)"


def test_an_exception_whose_text_cannot_be_made_is_described_all_the_same() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert describe_exception(Broken()) == "Broken: its own text cannot be made"


def test_the_module_is_light_as_reward_workers_need_it() -> None:
    command = "import sys, dapo.user_file; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "dapo.user_file" in loaded
    assert loaded.isdisjoint({"torch", "numpy", "transformers", "pydantic", "rich"})
