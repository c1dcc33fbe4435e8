"""The whole warm start in processes of its own: a new model, demonstrations, a kill, a resume, and training on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from dapo.cli.main import main

UPDATES = 160
PATIENCE_S = 120
"""Far more than any of this needs; a hang becomes a failure."""


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "dapo.cli.main", *map(str, words)]


def run(*words: object) -> str:
    done = subprocess.run(command(*words), capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def killed_after(path: Path, *words: object) -> None:
    """Run, and kill -9 as soon as `path` is there."""
    process = subprocess.Popen(command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    give_up = time.monotonic() + PATIENCE_S
    while not path.exists() and process.poll() is None and time.monotonic() < give_up:
        time.sleep(0.002)
    process.kill()
    assert process.wait() == -9, "it ended before it could be killed"


def metrics(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in line.items() if "seconds" not in name and "_per_s" not in name}
        for line in lines
    ]


def test_a_new_model_learns_survives_a_kill_and_is_improved_by_training(tmp_path: Path) -> None:
    model, data = tmp_path / "tiny", tmp_path / "data.jsonl"
    rows = [{"prompt": f"{a}+{b}=", "solution": f"{a + b}", "answer": f"{a + b}"} for a in range(4) for b in range(4)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shape = ["--layers", "1", "--hidden-size", "32", "--heads", "2", "--context", "32"]
    assert main(["new-model", str(model), *shape]) == 0

    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'[model]\nckpt = "{model}"\n[data]\ndataset_path = "{data}"\n[sft]\nbatch_size = 8\n'
        f"[training]\nlr = 1e-2\n[run]\nepochs = 1000\nmax_steps = {UPDATES}\nsave_interval = 20\n"
        f'eval_dataset_path = "{data}"\ntrain_devices = "cpu"\n'
    )
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    said = run("sft", recipe, "--save-path", unbroken)
    assert f"update {UPDATES}/{UPDATES}" in said
    assert "held-out loss" in said

    killed_after(broken / "checkpoints" / "step_000040" / "manifest.json", "sft", recipe, "--save-path", broken)
    assert not (broken / "final").exists()
    assert "going on from" in run("sft", "--resume", broken)
    assert metrics(broken) == metrics(unbroken)
    for file in ("final/model.safetensors", f"checkpoints/step_{UPDATES:06d}/optimizer.safetensors"):
        assert (broken / file).read_bytes() == (unbroken / file).read_bytes()

    before, first, last = metrics(unbroken)[0], metrics(unbroken)[1], metrics(unbroken)[-1]
    assert abs(before["heldout_loss"] - 5.55) < 0.3  # nothing is known yet: ln 258 = 5.55 nats
    assert last["heldout_loss"] < 0.3 * before["heldout_loss"]
    assert last["loss"] < 0.3 * first["loss"]

    words = ["--ckpt", unbroken / "final", "--dataset-path", data, "--reward", "exact_number", "--max-steps", 1]
    words += ["--algo", "grpo", "--batch-size", 2, "--n-samples", 2, "--max-new-tokens", 4, "--reward-workers", 1]
    run("train", *words, "--train-devices", "cpu", "--save-path", tmp_path / "trained")
    (update,) = metrics(tmp_path / "trained")
    assert 1 <= update["response_length_mean"] <= 4
    assert (tmp_path / "trained/final/model.safetensors").is_file()
