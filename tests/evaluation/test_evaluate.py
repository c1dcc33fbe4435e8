"""Whole evaluations of tiny models: what is drawn, what is kept, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import dapo.evaluation.evaluate
from dapo.errors import ConfigError, RewardError
from dapo.rollout.torch_engine import TorchEngine

ROWS = [{"prompt": "a", "answer": "7"}, {"prompt": "b", "answer": "9"}]
LETTERS = [{"prompt": letter, "answer": "1"} for letter in "abcdef"]
COUNTS_A = "def reward_fn(record):\n    return float(record.completion.count('a'))\n"


def measures(said: Any) -> dict[str, float]:
    return {measure.name: measure.value for measure in said.done.report.measures}


def texts(said: Any) -> list[list[str]]:
    return [[answer["text"] for answer in line["answers"]] for line in said.lines]


def test_a_model_that_knows_one_of_two_answers(run_eval: Callable[..., Any], knows_seven: Path) -> None:
    said = run_eval(knows_seven, ROWS)
    found = measures(said)
    assert [found[name] for name in ("avg@4", "pass@1", "pass@4", "maj@4", "reward")] == [0.5] * 5
    assert (found["length"], found["truncated"]) == (2.0, 0.0)  # one digit and the end token
    saved = json.loads(said.done.results.read_text())
    assert saved["metrics"]["avg@4"] == {"value": 0.5, "low": 0.0, "high": 1.0}
    assert [problem["right"] for problem in saved["per_problem"]] == [4, 0]
    assert (saved["rows_read"], saved["reward"], saved["model"]) == (2, "exact_number", str(knows_seven))
    assert texts(said) == [["7"] * 4, ["8"] * 4]


def test_an_answer_that_reaches_the_limit_is_cut(run_eval: Callable[..., Any], knows_seven: Path) -> None:
    found = measures(run_eval(knows_seven, ROWS, max_new_tokens=1))
    assert (found["length"], found["truncated"], found["avg@4"]) == (1.0, 1.0, 0.5)


def test_greedy_takes_the_likeliest_token_once(run_eval: Callable[..., Any], tiny_folder: Callable[..., Path]) -> None:
    first = run_eval(tiny_folder(), LETTERS, greedy=True, n=1, seed=1, save_path="one")
    again = run_eval(tiny_folder(), LETTERS, greedy=True, n=1, seed=2, save_path="two")
    assert texts(first) == texts(again)
    assert "avg@1" in measures(first)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_broken_off_evaluation_goes_on_as_the_unbroken_one(
    run_eval: Callable[..., Any], tiny_folder: Callable[..., Path]
) -> None:
    whole = run_eval(tiny_folder(), LETTERS, save_path="whole")
    part = run_eval(tiny_folder(), LETTERS, save_path="part")
    answers = part.folder / "answers.jsonl"
    lines = answers.read_bytes().splitlines(keepends=True)
    kept = b"".join(lines[:2])
    answers.write_bytes(kept + lines[2][:50])  # killed in the middle of a line
    part.done.results.unlink()
    resumed = run_eval(tiny_folder(), LETTERS, save_path="part")
    assert "2 of 6 rows are answered already" in resumed.output
    assert answers.read_bytes().startswith(kept)
    assert resumed.lines == whole.lines
    assert resumed.done.results.read_bytes() == whole.done.results.read_bytes()


def test_what_is_finished_is_not_answered_again(
    run_eval: Callable[..., Any], knows_seven: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_eval(knows_seven, ROWS)
    monkeypatch.setattr(TorchEngine, "step", None)  # whoever generates now fails
    assert run_eval(knows_seven, ROWS).done.report == first.done.report


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": 2}, "n is 2 now but was 4"),
        ({"max_new_tokens": 5}, "max_new_tokens is 5 now but was 6"),
        ({"temperature": 0.5}, "temperature is 0.5 now but was 1.0"),
        ({"top_p": 1.0}, "top_p is 1.0 now but was 0.7"),
        ({"top_k": 3}, "top_k is 3 now but was 0"),
        ({"stop_strings": ("x",)}, "stop_strings is ['x'] now but was []"),
        ({"seed": 2}, "seed is 2 now but was 1"),
        ({"dtype": "bfloat16"}, "dtype is bfloat16 now but was auto"),
        ({"reward": "math"}, "reward is math now but was exact_number"),
        ({"rows": ROWS[:1]}, "the data have changed"),
    ],
)
def test_another_evaluation_does_not_go_into_the_same_folder(
    run_eval: Callable[..., Any], knows_seven: Path, change: dict[str, Any], words: str
) -> None:
    said = run_eval(knows_seven, ROWS)
    before = (said.folder / "answers.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="holds another evaluation") as caught:
        run_eval(knows_seven, **{"rows": ROWS, **change})
    assert words in caught.value.problem
    assert "--save-path" in (caught.value.fix or "")
    assert (said.folder / "answers.jsonl").read_bytes() == before


def test_settings_that_change_no_answer_may_change(run_eval: Callable[..., Any], knows_seven: Path) -> None:
    first = run_eval(knows_seven, ROWS)
    again = run_eval(knows_seven, ROWS, max_num_seqs=2, kv_cache_gb=1.0, reward_workers=2, right_from=0.0)
    assert again.lines == first.lines
    assert measures(again)["avg@4"] == 1.0


def test_a_model_with_other_weights_is_another_evaluation(
    run_eval: Callable[..., Any], load_tiny: Callable[..., Any], tmp_path: Path
) -> None:
    model = load_tiny()
    model.module.save_pretrained(tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    run_eval(tmp_path / "model", LETTERS)
    with torch.no_grad():
        model.module.lm_head.weight[5, 5] += 1e-3
    model.module.save_pretrained(tmp_path / "model")
    with pytest.raises(ConfigError, match="the model has other weights"):
        run_eval(tmp_path / "model", LETTERS)


def test_a_copied_model_is_the_same_evaluation(
    run_eval: Callable[..., Any], tiny_folder: Callable[..., Path], tmp_path: Path
) -> None:
    run_eval(tiny_folder(), LETTERS)
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tiny_folder().iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    assert "6 of 6 rows are answered already" in run_eval(copy, LETTERS).output


def test_a_changed_reward_file_is_another_evaluation(
    run_eval: Callable[..., Any], tiny_folder: Callable[..., Path], tmp_path: Path
) -> None:
    own = tmp_path / "own.py"
    own.write_text(COUNTS_A)
    said = run_eval(tiny_folder(), LETTERS, reward_fn_path=str(own))
    assert not [name for name in measures(said) if name.startswith("maj")]
    own.write_text(COUNTS_A + "\n")
    with pytest.raises(ConfigError, match="the reward function has changed"):
        run_eval(tiny_folder(), LETTERS, reward_fn_path=str(own))


def test_a_folder_with_something_else_in_it_is_left_alone(
    run_eval: Callable[..., Any], knows_seven: Path, tmp_path: Path
) -> None:
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "config.toml").write_text("")
    with pytest.raises(ConfigError, match="holds something that is no evaluation"):
        run_eval(knows_seven, ROWS)
    assert [path.name for path in (tmp_path / "eval").iterdir()] == ["config.toml"]


def test_settings_that_cannot_be_read_are_named(run_eval: Callable[..., Any], knows_seven: Path) -> None:
    said = run_eval(knows_seven, ROWS)
    (said.folder / "settings.json").write_text("{")
    with pytest.raises(ConfigError, match=r"settings\.json cannot be read"):
        run_eval(knows_seven, ROWS)


def test_without_a_save_path_the_same_command_finds_its_folder_again(
    run_eval: Callable[..., Any], knows_seven: Path
) -> None:
    first = run_eval(knows_seven, ROWS, save_path=None)
    assert first.folder.parent.name == "evals"
    assert first.folder.name.startswith(f"{knows_seven.parent.name}-{knows_seven.name}-data-")
    assert run_eval(knows_seven, ROWS, save_path=None).folder == first.folder
    assert run_eval(knows_seven, ROWS, save_path=None, n=2).folder != first.folder


def test_the_seed_decides_what_is_drawn(run_eval: Callable[..., Any], tiny_folder: Callable[..., Path]) -> None:
    first = run_eval(tiny_folder(), LETTERS, save_path="one", top_p=1.0)
    assert texts(run_eval(tiny_folder(), LETTERS, save_path="two", top_p=1.0)) == texts(first)
    assert texts(run_eval(tiny_folder(), LETTERS, save_path="three", top_p=1.0, seed=2)) != texts(first)


def test_top_k_temperature_and_stop_strings_reach_the_engine(
    run_eval: Callable[..., Any], tiny_folder: Callable[..., Path]
) -> None:
    greedy = run_eval(tiny_folder(), LETTERS, save_path="greedy", greedy=True, n=1)
    for name, flags in {"top_k": {"top_k": 1}, "cold": {"temperature": 1e-4}, "top_p": {"top_p": 1e-9}}.items():
        assert texts(run_eval(tiny_folder(), LETTERS, save_path=name, n=1, **flags)) == texts(greedy)
    letter = texts(greedy)[0][0][0]
    stopped = run_eval(tiny_folder(), LETTERS, save_path="stop", greedy=True, n=1, stop_strings=(letter,))
    assert texts(stopped)[0] == [letter]


def test_the_engine_gets_the_memory_and_the_width_that_were_asked_for(
    run_eval: Callable[..., Any], knows_seven: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = []

    class Engine(TorchEngine):
        def __init__(self, model: Any, *, max_num_seqs: int, kv_cache_gb: float) -> None:
            widths.append(max_num_seqs)
            super().__init__(model, max_num_seqs=max_num_seqs, kv_cache_gb=kv_cache_gb)

    monkeypatch.setattr(dapo.evaluation.evaluate, "TorchEngine", Engine)
    run_eval(knows_seven, ROWS, max_num_seqs=3)
    assert widths == [3]
    with pytest.raises(ConfigError, match="kv_cache_gb is 1e-09"):
        run_eval(knows_seven, ROWS, save_path="small", kv_cache_gb=1e-9)


@pytest.mark.skipif(torch.cuda.is_available(), reason="names a GPU that is missing")
def test_a_gpu_that_is_not_there_is_refused(run_eval: Callable[..., Any], knows_seven: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="device is 0 but there are 0 GPUs"):
        run_eval(knows_seven, ROWS, device="0")
    assert not (tmp_path / "eval").exists()


def test_b72_a_set_that_repeats_its_problems_on_purpose_says_so_and_counts_them_once(
    run_eval: Callable[..., Any], knows_seven: Path, tmp_path: Path
) -> None:
    # The columns of AIME-2024 as it is published: two problems, each in three rows.
    problems = [("a", "7"), ("b", "9")] * 3
    columns = {
        "data_source": ["math_dapo"] * 6,
        "prompt": [[{"role": "user", "content": content}] for content, _ in problems],
        "reward_model": [{"ground_truth": truth, "style": "rule"} for _, truth in problems],
        "extra_info": [{"index": str(number)} for number in range(6)],
    }
    file = tmp_path / "aime.parquet"
    pq.write_table(pa.table(columns), file)
    said = run_eval(knows_seven, dataset_path=str(file), n=2, save_path="all")
    assert "6 rows, 2 distinct problems: --dedup-prompts keeps one of each" in said.output
    assert "count as one problem with more answers" in said.output
    assert (len(said.done.report.problems), said.done.report.fewest, len(said.lines)) == (2, 6, 6)
    assert "avg@6" in measures(said)
    once = run_eval(knows_seven, dataset_path=str(file), n=2, save_path="once", dedup_prompts=True)
    assert "6 rows, 2 distinct problems: kept one of each" in once.output
    assert (once.done.report.fewest, len(once.lines)) == (2, 2)
    assert json.loads(once.done.results.read_text())["rows_dropped_as_duplicates"] == 4


def test_rows_that_are_too_long_are_named_and_counted(run_eval: Callable[..., Any], knows_seven: Path) -> None:
    said = run_eval(knows_seven, [*ROWS, {"prompt": "c" * 20, "answer": "1"}], max_prompt_tokens=10)
    assert "dropped 1 prompt over max_prompt_tokens 10" in said.output
    assert json.loads(said.done.results.read_text())["rows_dropped_as_too_long"] == 1


def test_answers_that_could_not_be_judged_are_counted(
    run_eval: Callable[..., Any], knows_seven: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.py"
    own.write_text("import os\ndef reward_fn(record):\n    return 1.0 if record.prompt == 'a' else os._exit(1)\n")
    said = run_eval(knows_seven, ROWS, reward_fn_path=str(own), n=2)
    assert said.done.report.unjudged == 2
    assert measures(said)["avg@2"] == 0.5
    assert json.loads(said.done.results.read_text())["unjudged_answers"] == 2


def test_acc_decides_what_is_right_where_the_reward_returns_it(
    run_eval: Callable[..., Any], knows_seven: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.py"
    own.write_text("def reward_fn(record):\n    return {'score': -1.0, 'acc': record.prompt == 'a'}\n")
    found = measures(run_eval(knows_seven, ROWS, reward_fn_path=str(own)))
    assert (found["avg@4"], found["reward"]) == (0.5, -1.0)


def test_a_row_without_a_usable_answer_is_refused_before_a_folder_is_made(
    run_eval: Callable[..., Any], knows_seven: Path, tmp_path: Path
) -> None:
    with pytest.raises(RewardError, match="row 1"):
        run_eval(knows_seven, [ROWS[0], {"prompt": "b", "answer": ""}])
    assert not (tmp_path / "eval").exists()


def test_a_damaged_line_is_named(run_eval: Callable[..., Any], knows_seven: Path) -> None:
    said = run_eval(knows_seven, ROWS)
    with (said.folder / "answers.jsonl").open("a") as file:
        file.write('{"step": 5}\n')
    with pytest.raises(Exception, match="no answered row") as caught:
        run_eval(knows_seven, ROWS)
    assert caught.value.exit_code == 2  # type: ignore[attr-defined]
