"""A person's own function gives the rows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dapo.data import DataSettings, Row, load_rows
from dapo.errors import DataError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "loader.py"


def rows_of(spec: Path | str, dataset_path: str | None = None) -> list[Row]:
    return load_rows(DataSettings(dataset_loader_fn=str(spec), dataset_path=dataset_path))


def problem(spec: Path | str, dataset_path: str | None = None) -> str:
    with pytest.raises(DataError) as caught:
        rows_of(spec, dataset_path)
    assert caught.value.fix
    return str(caught.value)


def test_load_rows_is_the_default_among_several(file: Path) -> None:
    file.write_text("def helper(): return []\ndef load_rows(): return [{'prompt': 'a', 'answer': 0}]\n")
    (row,) = rows_of(file)
    assert (row.prompt, row.answer, row.place) == ("a", 0, f"{file} row 1")


def test_the_only_public_function_is_taken_whatever_its_name(file: Path) -> None:
    file.write_text(
        'from json import loads\ndef _text(): return \'{"prompt": "a"}\'\ndef mine(): yield loads(_text())\n'
    )
    assert [row.prompt for row in rows_of(file)] == ["a"]


def test_a_loader_may_define_dataclasses(file: Path) -> None:
    file.write_text(
        "from __future__ import annotations\nfrom dataclasses import asdict, dataclass\n"
        "@dataclass\nclass Problem:\n    prompt: str\n"
        "def load_rows(): return [asdict(Problem('a'))]\n"
    )
    assert [row.prompt for row in rows_of(file)] == ["a"]


def test_a_loader_imports_its_neighbours(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    file.with_name("neighbour_of_loader.py").write_text("ROWS = [{'prompt': 'beside'}]\n")
    file.write_text("def load_rows():\n    from neighbour_of_loader import ROWS\n    return ROWS\n")
    assert [row.prompt for row in rows_of(file)] == ["beside"]


def test_ctrl_c_in_a_loader_is_not_taken_for_its_fault(file: Path) -> None:
    file.write_text("def load_rows(): raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        rows_of(file)


def test_a_named_function_is_taken(file: Path) -> None:
    file.write_text("def load_rows(): return []\ndef other(): return [{'prompt': 'b'}]\n")
    assert [row.prompt for row in rows_of(f"{file}:other")] == ["b"]


def test_a_named_function_that_is_missing_is_not_replaced_by_the_only_one(file: Path) -> None:
    file.write_text("def mine(): return [{'prompt': 'a'}]\n")
    assert f"dataset_loader_fn names {file}, which has no function 'yours'; it defines mine" in problem(f"{file}:yours")


@pytest.mark.parametrize("signature", ["path", "path=None", "path, limit=3", "*paths"])
def test_a_function_with_a_parameter_gets_the_dataset_path(file: Path, signature: str) -> None:
    name = "paths[0]" if signature == "*paths" else "path"
    file.write_text(f"def load_rows({signature}): return [{{'prompt': {name}}}]\n")
    assert [row.prompt for row in rows_of(file, "x.bin")] == ["x.bin"]


def test_a_function_with_an_optional_parameter_needs_no_path(file: Path) -> None:
    file.write_text("def load_rows(path='own'): return [{'prompt': path}]\n")
    assert [row.prompt for row in rows_of(file)] == ["own"]


def test_a_path_that_the_function_cannot_take_is_refused_not_ignored(file: Path) -> None:
    file.write_text("def load_rows(): return [{'prompt': 'a'}]\n")
    assert "takes no parameter, so it would be ignored" in problem(file, "x.bin")


def test_a_path_that_the_function_needs_must_be_set(file: Path) -> None:
    file.write_text("def load_rows(path): return [{'prompt': 'a'}]\n")
    assert "takes path but dataset_path is not set" in problem(file)


BROKEN = {
    "syntax": ("def load_rows(:\n", "does not import: SyntaxError"),
    "import": ("import nothing_of_that_name\n", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    "exit": ("raise SystemExit(3)\n", "loader.py, which does not import: SystemExit: 3 ("),
    "several": ("def one(): 0\ndef two(): 0\n", "has no function 'load_rows'; it defines one, two"),
    "none": ("x = 1\n", "has no function 'load_rows'; it defines no public function"),
    "raises": ("def load_rows():\n    return {}['rows']\n", "loader.py, line 2, in load_rows: return {}['rows'])"),
    "panic": (
        "class Panic(BaseException): 0\ndef load_rows(): raise Panic('inside')\n",
        "loader.py failed: Panic: inside",
    ),
    "late": ("def load_rows():\n    yield {'prompt': 'a'}\n    1 / 0\n", "ZeroDivisionError"),
    "no list": ("def load_rows(): return None\n", "TypeError: 'NoneType' object is not iterable"),
    "no rows": ("def load_rows(): return []\n", "returned no rows"),
    "strings": ("def load_rows(): return ['a']\n", "row 1 is of type str, not a mapping"),
    "greedy": ("def load_rows(path, size): return []\n", "takes (path, size)"),
    "no prompt": ("def load_rows(): return [{'prompt': 'a'}, {'q': 'b'}]\n", "row 2 has no prompt"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_loader_is_explained(file: Path, case: str) -> None:
    source, reason = BROKEN[case]
    file.write_text(source)
    assert reason in problem(file)


def test_missing_files_and_functions_suggest_the_nearest(file: Path) -> None:
    file.write_text("def load_mine(): return []\ndef load_yours(): return []\n")
    assert f"did you mean {file}?" in problem(file.with_name("laoder.py"))
    assert f"did you mean {file}:load_mine?" in problem(f"{file}:load_min")
    assert "write it as file.py or file.py:function" in problem("loader.txt")
