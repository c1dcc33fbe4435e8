"""How long a run goes: epochs and max_steps, alone and together, and what is said of it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dapo.cli.main import main
from dapo.coordination.length import EpochNotices, Length
from dapo.coordination.settings import RunSettings
from dapo.data.stream import PromptStream
from dapo.records import Prompt

BY_SAMPLE = "def reward_fn(record):\n    return float(record.metadata['sample_index'])\n"
SIX = [f"{number}+1=" for number in range(6)]


@pytest.fixture
def trained(run_training: Callable[..., Path]) -> Callable[..., list[str]]:
    """Trains on six rows, two groups an update; returns the lines that a person reads."""

    def run(**settings: Any) -> list[str]:
        output = io.StringIO()
        run_training(**{"prompts": SIX, "reward": BY_SAMPLE, "batch_size": 2, "output": output, **settings})
        return output.getvalue().splitlines()

    return run


def updates(lines: list[str]) -> int:
    return sum(line.startswith("update ") and "reward" in line for line in lines)


def length(rows: int, batch_size: int = 4, *, filtering: bool = True, **run: Any) -> Length:
    settings = RunSettings(**run)
    prompts = [Prompt(number, "a", (1,)) for number in range(rows)]
    return Length(settings, PromptStream(prompts, epochs=settings.passes, seed=1), batch_size, filtering)


@pytest.mark.parametrize(
    ("settings", "passes"),
    [
        ({}, 1),
        ({"epochs": 3}, 3),
        ({"max_steps": 5}, None),
        ({"max_rollout_tokens": 500}, None),
        ({"epochs": 3, "max_steps": 5}, 3),
    ],
)
def test_the_data_goes_round_once_or_as_often_as_what_ends_the_run_needs(
    settings: dict[str, int], passes: int | None
) -> None:
    assert RunSettings(**settings).passes == passes


def test_max_steps_alone_decides_and_the_data_goes_round(trained: Callable[..., list[str]], tmp_path: Path) -> None:
    """Six rows in twos: three updates are an epoch, seven end in the third."""
    lines = trained(max_steps=7)
    assert updates(lines) == 7
    assert [line for line in lines if line.endswith(" begins")] == ["epoch 2 begins", "epoch 3 begins"]
    assert "  length      7 updates; the data goes round as often as needed" in lines
    ended = f"ended after 7 updates: max_steps 7 is reached; go on with: dapo train --resume {tmp_path}/run"
    assert lines[-1] == f"{ended} --max-steps 14"


def test_epochs_alone_end_the_run_with_the_data(trained: Callable[..., list[str]], tmp_path: Path) -> None:
    lines = trained(epochs=2)
    assert updates(lines) == 6
    assert "  length      2 epochs (at most 6 updates)" in lines
    ended = f"ended after 6 updates: the data ended, epochs is 2; go on with: dapo train --resume {tmp_path}/run"
    assert lines[-1] == f"{ended} --epochs 3"


def test_of_both_whichever_comes_first_ends_the_run_and_is_named(
    trained: Callable[..., list[str]], tmp_path: Path
) -> None:
    lines = trained(epochs=1, max_steps=8)
    assert updates(lines) == 3
    assert "  length      8 updates or 1 epoch (at most 3 updates), whichever comes first" in lines
    assert (
        "warning: epochs 1 ends the run before max_steps 8: 6 rows make at most 3 updates of 2; "
        "leave epochs out to go round until max_steps, or use --epochs 3" in lines
    )
    ended = f"ended after 3 updates: the data ended, epochs is 1; go on with: dapo train --resume {tmp_path}/run"
    assert lines[-1] == f"{ended} --epochs 3"
    assert "max_steps 2 is reached" in trained(epochs=1, max_steps=2, name="other")[-1]


def test_max_rollout_tokens_is_named_when_it_ends_the_run(trained: Callable[..., list[str]]) -> None:
    assert "max_rollout_tokens 1 is reached" in trained(max_rollout_tokens=1)[-1]


def test_the_command_that_a_run_ends_with_goes_on_with_it(
    trained: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three updates, then three more of the second epoch."""
    trained()
    assert main(["train", "--resume", str(tmp_path / "run"), "--epochs", "2"]) == 0
    assert "ended after 6 updates: the data ended, epochs is 2" in capsys.readouterr().out
    steps = [json.loads(line)["step"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4, 5, 6]


def test_the_last_smaller_batch_is_trained_and_said(trained: Callable[..., list[str]]) -> None:
    """Six rows in fours, once: 4 and 2. With max_steps the second is filled from the next epoch."""
    assert "update 2 takes the last 2 groups of the data, not 4" in trained(batch_size=4)
    assert not any("takes the last" in line for line in trained(batch_size=4, max_steps=2, name="other"))


def test_supervised_training_says_the_same(sft_runs: Any, tmp_path: Path) -> None:
    """Six rows in fours, twice: 4, 4 and 4; once: 4 and 2; by steps: as many as asked for."""
    sft_runs.start("both", max_steps=9)
    assert (
        "warning: epochs 2 ends the run before max_steps 9: 6 rows make at most 3 updates of 4; "
        "leave epochs out to go round until max_steps, or use --epochs 6" in sft_runs.said
    )
    assert "epoch 2 begins" in sft_runs.said
    ended = f"ended after 3 updates: the data ended, epochs is 2; go on with: dapo sft --resume {tmp_path}/both"
    assert f"{ended} --epochs 6" in sft_runs.said
    sft_runs.start("once", epochs=1)
    assert "update 2 takes the last 2 demonstrations of the data, not 4" in sft_runs.said
    sft_runs.start("steps", epochs=None, max_steps=5)
    assert len(sft_runs.metrics("steps")) == 5
    assert "max_steps 5 is reached" in sft_runs.said


def test_a_cosine_that_has_ended_goes_on_only_as_an_accepted_change() -> None:
    """The rate of every update depends on where it ends; a resume refuses it otherwise."""
    ending = length(60, max_steps=30).ending("train", Path("runs/a b"), 30, "max_steps", fixed_end=True)
    assert ending == (
        "ended after 30 updates: max_steps 30 is reached; go on with: "
        "dapo train --resume 'runs/a b' --max-steps 60 --allow-changes"
    )


def test_what_is_known_beforehand_is_a_bound_where_groups_are_dropped() -> None:
    """60 rows in fours are 15 updates; with dynamic sampling at most 15, so that they are no total."""
    assert (length(60).total(0), length(60, filtering=False).total(0)) == (None, 15)
    assert (length(60, max_steps=30).total(0), length(60, max_steps=30, epochs=1).total(0)) == (30, 15)
    assert length(60, filtering=False).fact(0) == "1 epoch (15 updates)"
    assert length(60, max_steps=15, epochs=1).warning(0) is None
    assert length(60, max_steps=16, epochs=1).warning(0) is not None


def test_an_update_that_takes_rows_several_times_is_warned_of() -> None:
    assert length(3, 16, max_steps=5).warning(0) == (
        "batch_size 16 is more than the 3 rows of the data: an update takes rows several times; "
        "lower batch_size, or set epochs to train on smaller updates"
    )
    assert length(3, 16).warning(0) is None


def test_many_epochs_are_said_at_round_numbers_only() -> None:
    """A small data set may go round hundreds of times: a log stays readable."""
    stream = PromptStream([Prompt(0, "a", (1,))], epochs=None, seed=1)
    notices = EpochNotices(stream)
    said = []
    for _ in range(200):
        stream.take(1)
        said.append(notices.new())
    spoken = [line for line in said if line]
    assert spoken[:10] == [f"epoch {number} begins" for number in (2, 3, 4, 5, 6, 7, 8, 9, 10, 20)]
    assert spoken[-2:] == ["epoch 100 begins", "epoch 200 begins"]
