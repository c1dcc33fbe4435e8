"""Files that people have, whole and broken."""

from __future__ import annotations

import csv
import gzip
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dapo.data import DataSettings, hub, load_rows
from dapo.data.readers import read_rows
from dapo.errors import ConfigError, DataError

ROWS = [
    {"prompt": "é 数 🙂", "answer": "1"},
    {"prompt": 'line one\nline "two", with a comma', "answer": ""},
    {"prompt": "\u2028 is a line separator", "answer": "007"},
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, ensure_ascii=False, indent=1), encoding="utf-8")
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        datasets.Dataset.from_list(rows).save_to_disk(str(path))
    return path


def columns(path: Path | str) -> list[dict[str, Any]]:
    return [row.columns for row in read_rows(str(path))]


def problem(path: Path | str) -> DataError:
    with pytest.raises(DataError) as caught:
        read_rows(str(path))
    assert caught.value.fix, "every data error says how to mend it"
    return caught.value


@pytest.mark.parametrize("name", ["d.json", "d.jsonl", "d.csv", "d.parquet", "d.JSONL", "folder"])
def test_every_form_gives_the_same_rows_with_text_unchanged(tmp_path: Path, name: str) -> None:
    """B73"""
    path = write(tmp_path / name.lower(), ROWS).rename(tmp_path / name)
    assert columns(path) == ROWS


def test_a_blank_line_is_no_row_but_counts_as_a_line(tmp_path: Path) -> None:
    """B73: the last line of a jsonl file is often blank."""
    path = tmp_path / "d.jsonl"
    path.write_bytes(b'{"prompt": "a"}\r\n\r\n  \n{"prompt": "b"}\n\n')
    assert [(row.place, row.columns["prompt"]) for row in read_rows(str(path))] == [("line 1", "a"), ("line 4", "b")]


@pytest.mark.parametrize("name", ["d.json", "d.jsonl", "d.csv"])
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, ROWS)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert columns(path) == ROWS


@pytest.mark.parametrize("name", ["d.jsonl", "d.json", "d.csv"])
def test_a_row_of_ten_megabytes_is_a_row(tmp_path: Path, name: str) -> None:
    rows = [{"prompt": "x" * 10_000_000}]
    assert columns(write(tmp_path / name, rows)) == rows


def test_reading_a_csv_leaves_the_limit_of_the_csv_module_as_it_was(tmp_path: Path) -> None:
    before = csv.field_size_limit(1234)
    columns(write(tmp_path / "d.csv", ROWS))
    assert csv.field_size_limit(before) == 1234


BROKEN = {
    "bad json.jsonl": (b'{"prompt": "a"}\n\n{"prompt": "b"\n', "line 3 is not valid JSON"),
    "cut.jsonl": (b'{"prompt": "a"}\n{"prom', "line 2 is not valid JSON"),
    "latin.jsonl": (b'{"prompt": "a"}\n{"prompt": "caf\xe9"}\n', "line 2 is not valid UTF-8"),
    "latin.json": (b'[\n{"prompt": "caf\xe9"}]', "line 2 is not valid UTF-8"),
    "latin.csv": (b"prompt\na\ncaf\xe9\n", "line 3 is not valid UTF-8"),
    "nul.jsonl": (b'{"prompt": "a"}\n\x00\x00\x00\n', "line 2 contains a NUL byte"),
    "nul.csv": (b"prompt\na\x00b\n", "line 2 contains a NUL byte"),
    "list.jsonl": (b'{"prompt": "a"}\n["b"]\n', "line 2 is a list, not an object"),
    "number.json": (b'[{"prompt": "a"}, 7]', "row 2 is a number, not an object"),
    "object.json": (b'{"data": []}', "is an object at the top, not a list"),
    "lines.json": (b'{"prompt": "a"}\n{"prompt": "b"}\n', "Extra data"),
    "surrogate.jsonl": (b'{"prompt": "\\ud83d"}\n', "line 1 contains half of a surrogate pair"),
    "deep.json": (b"[" * 100_000, "nested too deeply"),
    "huge number.jsonl": (b'{"prompt": "a", "n": ' + b"9" * 5000 + b"}\n", "line 1 cannot be read"),
    "short row.csv": (b"prompt,answer\na,1\nb\n", "row 2 has 1 fields, but the header has 2"),
    "long row.csv": (b"prompt,answer\na,1,2\n", "row 1 has 3 fields, but the header has 2"),
    "quote.csv": (b'prompt\n"a', "not valid csv"),
    "twice.csv": (b"prompt,prompt\na,b\n", "names a column twice"),
    "empty.jsonl": (b"", "is empty"),
    "empty.parquet": (b"", "is empty"),
    "blank.jsonl": (b"\n \n", "holds no rows"),
    "none.json": (b"[]", "holds no rows"),
    "header only.csv": (b"prompt,answer\n", "holds no rows"),
    "text.parquet": (b"PAR1 and then nothing", "cannot be read as parquet"),
    "json.parquet": (b'{"prompt": "a"}', "cannot be read as parquet"),
    "zipped.jsonl": (gzip.compress(b'{"prompt": "a"}'), "holds gzip, not jsonl"),
    "zipped.parquet": (gzip.compress(b"PAR1"), "holds gzip, not parquet"),
    "parquet.json": (b"PAR1....PAR1", "holds parquet, not json"),
    "wide.csv": ("prompt\na\n".encode("utf-16"), "holds UTF-16 text, not csv"),
    "p.jsonl": (pickle.dumps([{"prompt": "a"}]), "holds a Python pickle"),
    "p.pkl": (pickle.dumps([{"prompt": "a"}]), "holds a Python pickle"),
    "d.txt": (b"a problem", "suffix '.txt', which says no known format"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named_with_the_line_and_the_reason(tmp_path: Path, name: str) -> None:
    content, reason = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    error = problem(tmp_path / name)
    assert reason in error.problem
    assert name in error.problem


def test_json_lines_under_the_name_json_are_told_to_be_renamed(tmp_path: Path) -> None:
    (tmp_path / "d.json").write_bytes(b'{"prompt": "a"}\n{"prompt": "b"}\n')
    assert "rename such a file to .jsonl" in (problem(tmp_path / "d.json").fix or "")


def test_a_parquet_file_without_rows_is_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"prompt": pa.array([], pa.string())}), tmp_path / "d.parquet")
    assert "holds no rows" in problem(tmp_path / "d.parquet").problem


def test_a_parquet_folder_name_adds_no_column(tmp_path: Path) -> None:
    folder = tmp_path / "split=train"
    folder.mkdir()
    assert columns(write(folder / "d.parquet", ROWS)) == ROWS


def test_unpickling_never_happens(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "exploded"),)

    for suffix in ("pkl", "json", "jsonl", "csv", "parquet"):
        (tmp_path / f"bomb.{suffix}").write_bytes(pickle.dumps(Bomb()))
        problem(tmp_path / f"bomb.{suffix}")
    assert not (tmp_path / "exploded").exists()


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails the test if a hub is asked, even when the failure of the hub is reported as it should be."""
    asked: list[Any] = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *names, **_: asked.append(names))
    yield
    assert not asked


@pytest.fixture
def hub_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub has every name."""
    monkeypatch.setattr(hub, "hub_has", lambda name, kind: None)


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize(
    "name", ["trian.jsonl", "./trian", "../x", "/no/such", "~/no-such-file", "d.jsonl.gz", "a/b/c"]
)
def test_what_looks_like_a_missing_file_is_never_asked_of_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"{name} does not exist" in problem(name).problem


def test_a_missing_file_suggests_its_neighbour(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", ROWS)
    assert problem(tmp_path / "trian.jsonl").fix == f"did you mean {tmp_path / 'train.jsonl'}?"


def test_a_missing_folder_is_said_to_be_missing(tmp_path: Path) -> None:
    assert f"neither does the folder {tmp_path / 'nowhere'}" in problem(tmp_path / "nowhere" / "d.jsonl").problem


@pytest.mark.parametrize("name", ["no spaces/x", "https://x.org/d", "x" * 5000 + "!", "a\0b"])
@pytest.mark.usefixtures("no_hub")
def test_what_is_neither_file_nor_hub_id_is_an_error(name: str) -> None:
    assert "neither an existing file nor a hub id" in problem(name).problem


@pytest.mark.usefixtures("no_hub")
def test_a_folder_without_a_data_set_is_an_error(tmp_path: Path) -> None:
    assert "is a folder without a saved data set" in problem(tmp_path).problem


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "d.jsonl")
    assert "is not a regular file" in problem(tmp_path / "d.jsonl").problem


def test_of_a_folder_with_splits_the_split_train_is_read(tmp_path: Path) -> None:
    splits = datasets.DatasetDict(test=datasets.Dataset.from_list(ROWS[:1]), train=datasets.Dataset.from_list(ROWS))
    splits.save_to_disk(str(tmp_path / "both"))
    assert columns(tmp_path / "both") == ROWS
    assert columns(tmp_path / "both" / "test") == ROWS[:1]


def test_a_folder_without_the_split_train_names_the_others(tmp_path: Path) -> None:
    datasets.DatasetDict(test=datasets.Dataset.from_list(ROWS)).save_to_disk(str(tmp_path / "d"))
    error = problem(tmp_path / "d")
    assert "no split train, only test" in error.problem
    assert str(tmp_path / "d" / "test") in (error.fix or "")


def test_a_damaged_folder_is_an_error(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", ROWS)
    for arrow in folder.glob("*.arrow"):
        arrow.write_bytes(b"broken")
    assert "cannot be read as a saved data set" in problem(folder).problem


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("org/set", ("org/set", None, "train")),
        ("org/set:main", ("org/set", "main", "train")),
        ("org/set:main:test", ("org/set", "main", "test")),
        ("org/set::test[:10]", ("org/set", None, "test[:10]")),
        ("AIME_2024.v1", ("AIME_2024.v1", None, "train")),
    ],
)
@pytest.mark.usefixtures("hub_knows")
def test_a_hub_id_is_repo_config_split(monkeypatch: pytest.MonkeyPatch, name: str, asked: tuple[Any, ...]) -> None:
    seen = []

    def load(repo: str, config: str | None, *, split: str) -> datasets.Dataset:
        seen.append((repo, config, split))
        return datasets.Dataset.from_list(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert columns(name) == ROWS
    assert seen == [asked]


@pytest.mark.usefixtures("hub_knows")
def test_a_hub_failure_is_a_data_error_with_the_hubs_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route to the hub\nand a page of details")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    error = problem("org/set")
    assert error.problem.endswith("could not be loaded from the hub hf: no route to the hub")


def test_the_hub_setting_decides_who_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_fetch_from_modelscope", lambda *_: ROWS)
    rows = load_rows(DataSettings(dataset_path="org/set"), model_hub="modelscope")
    assert [row.columns for row in rows] == ROWS


def test_modelscope_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "modelscope", None)
    with pytest.raises(DataError, match="fix: pip install modelscope"):
        read_rows("org/set", model_hub="modelscope")


def test_an_unknown_hub_is_refused() -> None:
    with pytest.raises(ConfigError, match="model_hub is 'hub'"):
        read_rows("org/set", model_hub="hub")


FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def load_or_explain(path: Path) -> None:
    try:
        rows = load_rows(DataSettings(dataset_path=str(path)))
    except DataError:
        return
    assert rows


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv", ".parquet", ".bin"])
@FUZZ
@given(content=st.binary(max_size=200))
def test_any_bytes_give_rows_or_a_data_error(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"d{suffix}"
    path.write_bytes(content)
    load_or_explain(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
COLUMNS = st.sampled_from(["prompt", "role", "content", "answer", "solutions", "reward_model", "ground_truth"])


@FUZZ
@given(rows=st.lists(st.dictionaries(COLUMNS, JSON, max_size=4) | JSON, max_size=3))
def test_any_json_values_give_rows_or_a_data_error(tmp_path: Path, rows: list[Any]) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    load_or_explain(path)


@FUZZ
@given(data=st.data())
def test_a_damaged_parquet_file_gives_rows_or_a_data_error(tmp_path: Path, data: st.DataObject) -> None:
    whole = tmp_path / "whole.parquet"
    if not whole.exists():
        write(whole, ROWS * 20)
    content = bytearray(whole.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[place] ^= data.draw(st.integers(1, 255))
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(content[: data.draw(st.integers(1, len(content)))])
    load_or_explain(damaged)
