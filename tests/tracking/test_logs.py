"""metrics.jsonl and rollouts.jsonl: valid, exact, whole lines, whatever happens."""

import json
import math
import resource
from types import MappingProxyType

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dapo.errors import DapoError, DataError
from dapo.records import Completion, Group, Prompt, Score, TrainedTokens
from dapo.tracking.json_lines import JsonLines, encode
from dapo.tracking.metrics_log import MetricsLog, read_metrics
from dapo.tracking.rollout_log import RolloutLog


def refuse_constant(name):
    raise AssertionError(f"{name} is not JSON")


def strict_lines(path):
    """Parses as strictly as any other tool would."""
    return [json.loads(line, parse_constant=refuse_constant) for line in path.read_bytes().decode().split("\n")[:-1]]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def test_each_update_is_one_line_that_starts_with_its_step(path):
    log = MetricsLog(path)
    log.write(1, {"loss": 0.25, "dapo_gen_batches": 2})
    log.write(2, {"loss": -0.5, "heldout_accuracy": None})
    assert path.read_text() == (
        '{"step": 1, "loss": 0.25, "dapo_gen_batches": 2}\n{"step": 2, "loss": -0.5, "heldout_accuracy": null}\n'
    )


def test_values_that_are_not_finite_become_null_and_ints_stay_ints(path):
    """B90: nothing to average over is null in the log, no crash, valid JSON."""
    MetricsLog(path).write(1, {"entropy": math.nan, "loss": math.inf, "grad_norm": -math.inf, "rollout_tokens": 3})
    assert strict_lines(path) == [{"step": 1, "entropy": None, "loss": None, "grad_norm": None, "rollout_tokens": 3}]
    assert '"rollout_tokens": 3}' in path.read_text()


def test_numbers_of_other_libraries_are_written_as_numbers(path):
    """The reward contract's case: a bool, NumPy or tensor value must not crash a JSON log."""
    values = {"reward/a": np.float32(0.5), "reward/b": torch.tensor(2), "reward/c": True, "reward/d": np.float64("nan")}
    MetricsLog(path).write(1, values)
    assert strict_lines(path) == [{"step": 1, "reward/a": 0.5, "reward/b": 2, "reward/c": True, "reward/d": None}]


def test_a_name_that_is_not_declared_writes_nothing(path):
    with pytest.raises(KeyError, match="rewrad"):
        MetricsLog(path).write(1, {"loss": 1.0, "rewrad": 1.0})
    assert not path.exists()


def test_going_back_to_a_checkpoint_forgets_the_later_updates(path):
    log = MetricsLog(path)
    for step in (0, 1, 2, 3, 10):
        log.write(step, {"loss": 0.5})
    log.truncate_after(2)
    assert [line["step"] for line in read_metrics(path)] == [0, 1, 2]
    log.write(3, {"loss": 0.75})
    assert read_metrics(path)[-1] == {"step": 3, "loss": 0.75}


def test_going_back_before_the_first_update_leaves_an_empty_file(path):
    log = MetricsLog(path)
    log.truncate_after(5)  # no file yet
    assert not path.exists()
    log.write(1, {"loss": 0.5})
    log.truncate_after(0)
    assert path.read_bytes() == b""
    log.truncate_after(0)
    assert read_metrics(path) == []


def test_a_half_written_last_line_is_ignored_by_readers_and_mended_by_the_next_write(path):
    MetricsLog(path).write(1, {"loss": 0.5})
    with path.open("ab") as file:
        file.write(b'{"step": 2, "lo')  # killed in the middle
    assert [line["step"] for line in read_metrics(path)] == [1]
    MetricsLog(path).write(2, {"loss": 0.25})
    assert strict_lines(path) == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]


def test_going_back_also_forgets_a_half_written_line_and_garbage_at_the_end(path):
    MetricsLog(path).write(1, {"loss": 0.5})
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0\0\0\0\n" + b'{"step": 2, "lo')
    MetricsLog(path).truncate_after(1)
    assert path.read_bytes() == whole


def test_a_broken_line_in_the_middle_is_named(path):
    path.write_text('{"step": 1}\nnot json\n{"step": 3}\n')
    with pytest.raises(DataError, match="line 2 is not a JSON object"):
        read_metrics(path)


def test_a_missing_file_is_named(path):
    with pytest.raises(DataError, match=r"cannot read .*metrics.jsonl: No such file"):
        read_metrics(path)


def test_a_write_that_the_disk_refuses_names_the_file_and_leaves_whole_lines(path):
    log = MetricsLog(path)
    log.write(1, {"loss": 0.5})
    whole = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 10, limits[1]))  # takes 10 bytes of the line, no more
    try:
        with pytest.raises(DapoError, match=r"cannot write .*metrics.jsonl: File too large") as refused:
            log.write(2, {"loss": 0.25})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == whole
    assert "go on with --resume" in refused.value.fix


def test_a_missing_folder_is_a_clear_error(tmp_path):
    with pytest.raises(DapoError, match=r"cannot write .*gone/metrics.jsonl: No such file"):
        MetricsLog(tmp_path / "gone" / "metrics.jsonl").write(1, {"loss": 0.5})


def make_group(text="4", answer="4"):
    logprobs = tuple(torch.tensor([-0.4700036, -1e-7]).tolist())
    return Group(
        id=17,
        prompt=Prompt(index=3, text="2+2=", tokens=(1, 2), answer=answer),
        completions=(
            Completion(tokens=(5, 6), logprobs=logprobs, text=text, stop_reason="stop"),
            Completion(tokens=(7,), logprobs=(-0.5,), text="5", stop_reason="length"),
        ),
        scores=(Score(1.0, {"acc": 1.0}), Score(0.0, {"acc": 0.0})),
        version=2,
    )


def test_a_group_is_one_line_with_every_answer_its_reward_and_its_advantage(path):
    group = make_group()
    exact = torch.tensor([-0.3, -2.5]).tolist()  # -0.30000001192092896, as float32 has it
    RolloutLog(path).write(3, group, "trained", [0.0, -0.25], [1.0, -1.0], [TrainedTokens(exact, (1,), ()), None])
    (line,) = strict_lines(path)
    answers = line.pop("completions")
    assert line == {
        "step": 3, "group": 17, "prompt_index": 3, "status": "trained", "version": 2, "prompt": "2+2=", "answer": "4",
    }  # fmt: skip
    assert answers[0] == {
        "text": "4", "tokens": [5, 6], "logprobs": list(group.completions[0].logprobs), "stop_reason": "stop",
        "reward": 1.0, "metrics": {"acc": 1.0}, "penalty": 0.0, "advantage": 1.0,
        "train_logprobs": exact, "clipped_upper": [1], "clipped_lower": [],
    }  # fmt: skip
    assert [answers[1][key] for key in ("train_logprobs", "clipped_upper", "clipped_lower")] == [None] * 3
    assert [answers[1][key] for key in ("stop_reason", "penalty", "advantage")] == ["length", -0.25, -1.0]


def test_a_group_that_was_not_trained_has_nothing_that_training_gives(path):
    RolloutLog(path).write(1, make_group(), "constant")
    (line,) = strict_lines(path)
    given = ("penalty", "advantage", "train_logprobs", "clipped_upper", "clipped_lower")
    assert [[answer[key] for key in given] for answer in line["completions"]] == [[None] * 5] * 2


def test_a_count_that_differs_from_the_answers_is_refused_not_shortened(path):
    """B82: zip() drops the last samples when counts differ."""
    with pytest.raises(ValueError, match="shorter"):
        RolloutLog(path).write(1, make_group(), "trained", [0.0], [1.0, -1.0])
    with pytest.raises(ValueError, match="shorter"):
        RolloutLog(path).write(1, make_group(), "trained", [0.0, 0.0], [1.0, -1.0], [None])
    assert not path.exists()


def test_whatever_a_model_writes_comes_back_unchanged(path):
    """B73: UTF-8 survives. A lone surrogate and the line separators of str.splitlines must not break a line."""
    text = "é 数 \N{GRINNING FACE} \x00 \x1b[31m \u2028 \x85 \r\n \ud800"
    RolloutLog(path).write(1, make_group(text), "surplus", None, None)
    (line,) = strict_lines(path)
    assert line["completions"][0]["text"] == text
    assert "数" in path.read_text(encoding="utf-8")  # readable with grep


@pytest.mark.parametrize(
    ("answer", "written"),
    [
        ({"a": [np.int64(3), 2.5]}, {"a": [3, 2.5]}),
        (np.array([1, 2]), [1, 2]),
        (math.nan, None),
        (b"x", "b'x'"),
        ({(1, 2): "pair"}, {"(1, 2)": "pair"}),
        (MappingProxyType({"k": 1}), {"k": 1}),
    ],
)
def test_any_reference_answer_of_a_data_file_can_be_written(path, answer, written):
    RolloutLog(path).write(1, make_group(answer=answer), "stale", None, None)
    assert strict_lines(path)[0]["answer"] == written


def test_rollouts_are_forgotten_by_step_too(path):
    log = RolloutLog(path)
    for step in (1, 1, 2, 2):
        log.write(step, make_group(), "surplus", None, None)
    log.truncate_after(1)
    assert [line["step"] for line in strict_lines(path)] == [1, 1]


plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(plain_json)
def test_every_value_is_one_line_and_reads_back_equal(value):
    line = encode({"x": value})
    assert line.count(b"\n") == 1
    assert json.loads(line) == {"x": value}


@given(steps=st.lists(st.integers(0, 9), max_size=8).map(sorted), cut=st.integers(-1, 10), half=st.booleans())
def test_going_back_keeps_exactly_the_steps_up_to_the_cut(tmp_path_factory, steps, cut, half):
    lines = JsonLines(tmp_path_factory.mktemp("lines") / "x.jsonl")
    for step in steps:
        lines.append(step, {"n": 1})
    if half:
        with lines.path.open("ab") as file:
            file.write(b'{"step"')
    lines.truncate_after(cut)
    kept = strict_lines(lines.path) if lines.path.exists() else []
    assert [line["step"] for line in kept] == [step for step in steps if step <= cut]
