"""`dapo check-reward`: a reward on given answers, without a model."""

import json

import pytest

from dapo.cli.main import main


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "d.jsonl"
    rows = [{"prompt": "2+5", "answer": "7"}, {"prompt": "1+1", "answer": "2"}, {"prompt": "4+4", "answer": "8"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def cells(output: str) -> list[list[str]]:
    """The table's rows, each as its cells."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if line.startswith("│")]


def test_given_answers_are_scored_for_every_row(data, capsys):
    arguments = ["check-reward", "--reward", "exact_number", "--dataset-path", str(data)]
    assert main([*arguments, "--completion", "it is 7", "--completion", "2"]) == 0
    rows = cells(capsys.readouterr().out)
    # The last number of the completion against the row's answer.
    assert [(row[0], row[2], row[3]) for row in rows] == [
        ("0", "it is 7", "1"),
        ("0", "2", "0"),
        ("1", "it is 7", "0"),
        ("1", "2", "1"),
        ("2", "it is 7", "0"),
        ("2", "2", "0"),
    ]


def test_without_answers_the_rows_own_is_right_and_an_empty_one_wrong(data, capsys):
    assert main(["check-reward", "--reward", "math", "--dataset-path", str(data), "--rows", "1"]) == 0
    assert [row[3] for row in cells(capsys.readouterr().out)] == ["1", "0"]


def test_a_function_that_breaks_its_contract_is_named_with_the_row(data, tmp_path, capsys):
    reward = tmp_path / "reward.py"
    reward.write_text("def reward_fn(record):\n    return None\n")
    assert main(["check-reward", "--reward-fn-path", str(reward), "--dataset-path", str(data)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error:")
    assert "row 0" in error


def test_no_rows_at_all_is_refused(data, capsys):
    assert main(["check-reward", "--reward", "math", "--dataset-path", str(data), "--rows", "0"]) == 2
    assert "--rows is 0" in capsys.readouterr().err
