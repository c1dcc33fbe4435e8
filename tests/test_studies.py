"""The studies of `scripts/`: their runs, really made by a tiny model, and their tables, from numbers made up here."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A script by its name, imported as if from its own folder."""
    monkeypatch.syspath_prepend(SCRIPTS)
    return import_module


def write_run(folder: Path, accuracies: dict[int, float], updates: int = 8) -> None:
    """Metrics of a finished run that writes 1,500 tokens and takes 2 seconds an update."""
    folder.mkdir(parents=True)
    lines = []
    for step in range(updates + 1):
        line = {"step": step} | ({"rollout_tokens": 1500, "seconds_total": 2.0, "entropy": step / 4} if step else {})
        lines.append(line | ({"heldout_accuracy": accuracies[step]} if step in accuracies else {}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def cells(text: str, label: str) -> list[list[str]]:
    """The cells of the table rows with this label, one for each table."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return [row[1:] for row in rows if row[0] == label]


def test_the_ablation_s_table(script, tmp_path):
    """The last quarter of 9 lines is updates 6 to 8; GRPO has 50% and 70% there, 60% on average."""
    ablation = script("ablation")
    accuracies = {row.name: ({4: 0.3, 8: 0.5}, {4: 0.4, 8: 0.7}) for row in ablation.ROWS}
    accuracies["dapo"] = ({4: 0.6, 8: 0.8}, {4: 0.61, 8: 0.9})
    for name, seeds in accuracies.items():
        for seed, measured in enumerate(seeds, start=1):
            write_run(tmp_path / name / str(seed), {0: 0.2} | measured)
    runs = [ablation.StudyRun(name, seed, Path("base.toml"), 8) for seed in (1, 2) for name in accuracies]
    text = ablation.report(ablation.Study(runs, tmp_path / "scratch", tmp_path))
    assert "2 seeds, 8 updates each. Before reinforcement the model solves 20.0%" in text
    # Only one seed of GRPO comes to 60%: after 8 updates, 12 thousand tokens and 16 seconds. Each of DAPO does after 4.
    assert cells(text, "naive GRPO")[0] == ["60.0% (50.0% to 70.0%)"] * 2 + ["8", "12", "16", "1 of 2"]
    assert cells(text, "+ dynamic sampling (DAPO)")[0] == ["85.0% (80.0% to 90.0%)"] * 2 + ["4", "6", "8", "2 of 2"]
    # 30 points more with the first seed, 20 with the second.
    assert "seed by seed: +25.0% (+20.0% to +30.0%)." in text
    # Entropies 6/4, 7/4 and 8/4; nothing else was written.
    assert cells(text, "naive GRPO")[1] == ["1.750", *"-----"]


def test_a_row_that_no_seed_brings_to_the_goal_says_never(script, tmp_path):
    ablation = script("ablation")
    for row in ablation.ROWS:
        write_run(tmp_path / row.name / "1", {0: 0.1, 8: 0.3 if row.name == "clip-higher" else 0.4})
    runs = [ablation.StudyRun(row.name, 1, Path("base.toml"), 8) for row in ablation.ROWS]
    text = ablation.report(ablation.Study(runs, tmp_path / "scratch", tmp_path))
    assert cells(text, "+ Clip-Higher")[0][2:] == ["never", "never", "never", "0 of 1"]


def test_the_table_of_difficulty(script, tmp_path):
    """Three seeds at 30%, 40% and 50%: deviation 10 points, interval 4.303 x 10 / sqrt(3) = 24.8 to either side."""
    difficulty = script("difficulty")
    runs = []
    for task in difficulty.TASKS:
        for algorithm in difficulty.ALGORITHMS:
            for seed, after in enumerate((0.3, 0.4, 0.5), start=1):
                runs.append(difficulty.StudyRun(f"{task.name}/{algorithm}", seed, Path("base.toml"), 100))
                write_run(tmp_path / runs[-1].name, {0: seed / 10, 5: after}, updates=5)
    text = difficulty.report(difficulty.Study(runs, tmp_path / "scratch", tmp_path))
    assert "3 seeds" in text
    assert cells(text, "sums of one digit") == [["20.0%", *["40.0% (15.2% to 64.8%); 5; 7.5"] * 4]]


@pytest.fixture
def recipe(tmp_path: Path, tiny_folder: Callable[..., Path]) -> Path:
    file = tmp_path / "tiny.toml"
    file.write_text(
        f'[algorithm]\nalgo = "grpo"\n[model]\nckpt = "{tiny_folder()}"\n'
        '[data]\ndataset_path = "task:chain_sum?terms=2&digits=1&rows=20"\n[reward]\nreward = "exact_number"\n'
        '[rollout]\nn_samples = 2\nmax_new_tokens = 4\n[collection]\nbatch_size = 2\n[run]\ntrain_devices = "cpu"\n'
    )
    return file


def files(folder: Path) -> Sequence[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_study_makes_its_runs_side_by_side_and_keeps_their_settings_and_metrics(script, recipe, tmp_path):
    study = script("study")
    runs = [study.StudyRun("plain", 1, recipe, 2), study.StudyRun("warm/high", 3, recipe, 1, ("--temperature", "2"))]
    made = study.Study(runs, tmp_path / "scratch", tmp_path / "results")
    made.make(at_once=2)
    assert files(tmp_path / "results") == [
        *("plain/1/config.toml", "plain/1/metrics.jsonl"),
        *("warm/high/3/config.toml", "warm/high/3/metrics.jsonl"),
    ]
    assert [line["step"] for line in made.metrics("plain")[0]] == [1, 2]
    settings = (tmp_path / "results/warm/high/3/config.toml").read_text()
    assert "temperature = 2.0" in settings
    assert "seed = 3" in settings
    assert files(tmp_path / "scratch") == []

    before = (tmp_path / "results/plain/1/metrics.jsonl").stat()
    made.make(at_once=2)  # nothing is left to do
    assert (tmp_path / "results/plain/1/metrics.jsonl").stat() == before


def test_a_run_that_fails_ends_the_study_and_names_its_log(script, recipe, tmp_path):
    study = script("study")
    made = study.Study(
        [study.StudyRun("broken", 1, recipe, 1, ("--n-samples", "0"))], tmp_path / "scratch", tmp_path / "results"
    )
    with pytest.raises(SystemExit, match=r"broken/1 ended with exit code 2: see .*broken/1\.log"):
        made.make(at_once=1)
    assert "n_samples" in (tmp_path / "scratch/broken/1.log").read_text()
    assert files(tmp_path / "results") == []
