"""`dapo export`: a folder that any tool loads, in the type that was asked for."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from dapo.checkpoints.export import export_model
from dapo.checkpoints.fingerprint import Fingerprint
from dapo.checkpoints.random_states import random_states
from dapo.checkpoints.run_state import RunState
from dapo.checkpoints.store import Checkpoint, CheckpointStore
from dapo.cli.main import main
from dapo.errors import ConfigError, DapoError
from dapo.models.language_model import LanguageModel
from dapo.models.saved_state import write_trained
from dapo.training.optimizer import MasterAdamW
from dapo.training.settings import TrainingSettings


def header(file: Path) -> dict[str, Any]:
    """Name -> description of each tensor, read as the format says: 8 bytes of length, then JSON."""
    content = file.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    entries = json.loads(content[8 : 8 + size])
    return {name: entry for name, entry in entries.items() if name != "__metadata__"}


def dtypes(file: Path) -> set[str]:
    return {entry["dtype"] for entry in header(file).values()}


@pytest.fixture
def checkpoint_of(tmp_path: Path) -> Callable[[LanguageModel], Checkpoint]:
    """The checkpoint of a model before any step, saved as a run does."""

    def save(model: LanguageModel) -> Checkpoint:
        parameters = dict(model.module.named_parameters())
        optimizer = MasterAdamW(parameters.values(), TrainingSettings())
        state = RunState(1, 0, (), 0, 0, 0, random_states(), Fingerprint({}, "d", None, None))
        tensors = optimizer.state(list(parameters))
        return CheckpointStore(tmp_path / "checkpoints").save(
            state, lambda folder: write_trained(folder, model, tensors)
        )

    return save


def test_an_export_keeps_the_type_that_was_trained_and_every_file(
    tiny_runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_runs.start("run", save_interval=1, max_steps=2)
    assert main(["export", str(run), "--step", "1", "--out", str(tmp_path / "out")]) == 0
    assert "the model after update 1" in capsys.readouterr().out
    kept = run / "checkpoints/step_000001/model"
    files = sorted(path.name for path in kept.iterdir())
    assert files == sorted(path.name for path in (tmp_path / "out").iterdir())
    assert all((kept / name).read_bytes() == (tmp_path / "out" / name).read_bytes() for name in files)
    assert {"generation_config.json", "chat_template.jinja", "tokenizer.json"} <= set(files)


def test_the_newest_is_exported_by_default_and_loads_as_the_final_model_does(tiny_runs: Any, tmp_path: Path) -> None:
    run = tiny_runs.start("run", save_interval=1, max_steps=2)
    assert main(["export", str(run), "--out", str(tmp_path / "out")]) == 0
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    final = AutoModelForCausalLM.from_pretrained(run / "final")
    tokens = torch.tensor([[5, 9, 2]])
    assert torch.equal(ours(tokens).logits, final(tokens).logits)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    message = [{"role": "user", "content": "hi"}]
    assert tokenizer.apply_chat_template(message, tokenize=False) == "[user]hi"


def test_tied_weights_stay_tied(tiny_runs: Any, tmp_path: Path) -> None:
    """The head is stored once, as the embedding."""
    run = tiny_runs.start("run", max_steps=1)
    main(["export", str(run), "--out", str(tmp_path / "out"), "--dtype", "bfloat16"])
    assert "lm_head.weight" not in header(tmp_path / "out/model.safetensors")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_bfloat16_is_in_every_floating_tensor_and_in_the_config(
    load_tiny: Callable[..., LanguageModel], checkpoint_of: Callable[[LanguageModel], Checkpoint], tmp_path: Path
) -> None:
    """B67: integer buffers keep their type."""
    model = load_tiny()
    model.module.model.register_buffer("counts", torch.arange(3))
    checkpoint = checkpoint_of(model)
    export_model(checkpoint, tmp_path / "out", "bfloat16")
    types = {name: entry["dtype"] for name, entry in header(tmp_path / "out/model.safetensors").items()}
    assert types.pop("model.counts") == "I64"
    assert set(types.values()) == {"BF16"}
    assert json.loads((tmp_path / "out/config.json").read_text())["dtype"] == "bfloat16"
    assert dtypes(checkpoint.model / "model.safetensors") == {"F32", "I64"}


def test_float32_from_bfloat16_training_comes_from_the_masters(
    load_tiny: Callable[..., LanguageModel], checkpoint_of: Callable[[LanguageModel], Checkpoint], tmp_path: Path
) -> None:
    """B67: the checkpoint keeps float32 masters. 1 + 2^-10 is no bfloat16 (8 bits), which rounds it to 1."""
    model = load_tiny(dtype="bfloat16")
    parameters = dict(model.module.named_parameters())
    optimizer = MasterAdamW(parameters.values(), TrainingSettings())
    with torch.no_grad():
        optimizer.masters[0].fill_(1 + 2**-10)
    state = RunState(1, 0, (), 0, 0, 0, random_states(), Fingerprint({}, "d", None, None))
    tensors = optimizer.state(list(parameters))
    checkpoint = CheckpointStore(tmp_path / "c").save(state, lambda folder: write_trained(folder, model, tensors))
    assert dtypes(checkpoint.model / "model.safetensors") == {"BF16"}
    export_model(checkpoint, tmp_path / "out", "float32")
    assert dtypes(tmp_path / "out/model.safetensors") == {"F32"}
    assert json.loads((tmp_path / "out/config.json").read_text())["dtype"] == "float32"
    weight = AutoModelForCausalLM.from_pretrained(tmp_path / "out").model.embed_tokens.weight
    assert weight.unique().tolist() == [1 + 2**-10]


def test_an_existing_folder_is_not_overwritten(
    load_tiny: Callable[..., LanguageModel], checkpoint_of: Callable[[LanguageModel], Checkpoint], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("precious")
    with pytest.raises(ConfigError, match=r"--out .* exists"):
        export_model(checkpoint_of(load_tiny()), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_an_export_that_cannot_be_written_is_an_error_with_the_reason(
    load_tiny: Callable[..., LanguageModel], checkpoint_of: Callable[[LanguageModel], Checkpoint], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DapoError, match=r"cannot write .*/file/out: "):
        export_model(checkpoint_of(load_tiny()), tmp_path / "file" / "out")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["missing", "--out", "o"], "is not a run folder"),
        (["run", "--out", "o"], "has no checkpoint yet"),
        (["run", "--out", "o", "--step", "3"], "has no checkpoint of step 3"),
        (["run", "--out", "o", "--step", "x"], "--step is 'x', not a whole number"),
    ],
)
def test_what_cannot_be_exported_is_said(
    words: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.toml").write_text("")
    assert main(["export", *words]) == 2
    said = capsys.readouterr().err
    assert problem in said
    assert "fix:" in said
    assert not (tmp_path / "o").exists()
