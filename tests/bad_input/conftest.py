"""What bad input must come to: exit code 2, one `error:` with its `fix:`, no traceback, no new file, no hang."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from dapo.cli.main import main
from dapo.errors import DapoError

HANGS_AFTER_S = 120
"""Far more than any of these tests needs."""


@dataclass(frozen=True)
class Refusal:
    """What a person reads."""

    error: str
    fix: str


@pytest.fixture(autouse=True)
def _bounded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A hang becomes a failure, and no hub is asked."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    def hangs(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANGS_AFTER_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own folder to be in, with good data and a good reward."""
    monkeypatch.chdir(tmp_path)
    Path("data.jsonl").write_text('{"prompt": "a", "answer": "1"}\n{"prompt": "b", "answer": "2"}\n')
    Path("reward.py").write_text("def reward_fn(record):\n    return record.metadata['sample_index']\n")
    return tmp_path


def contents() -> dict[str, bytes | None]:
    """Every file of the folder we are in; what Python compiles on its own does not count."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in Path().rglob("*")
        if "__pycache__" not in path.parts and path.name != ".lock"
    }


@pytest.fixture
def refused(workplace: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Refusal]:
    """Runs `dapo` with these words and holds it to the contract; standard error is that of the workers, too."""

    def run(*words: object) -> Refusal:
        before = contents()
        capfd.readouterr()
        code = main([str(word) for word in words])
        err = capfd.readouterr().err
        assert "Traceback" not in err
        said = re.fullmatch(r"error: (.+)\n  fix: (.+)\n", err, re.DOTALL)
        assert said, err
        assert code == 2
        assert contents() == before
        return Refusal(said[1], said[2])

    return run


@pytest.fixture
def refused_run(refused: Callable[..., Refusal], tiny_folder: Callable[..., Path]) -> Callable[..., Refusal]:
    """Runs `dapo train` on good input, with settings changed; None leaves one out."""

    def run(*words: object, **changes: Any) -> Refusal:
        good = {
            "ckpt": tiny_folder(),
            "dataset_path": "data.jsonl",
            "reward_fn_path": "reward.py",
            "save_path": "out",
            "reward_workers": 1,
            "train_devices": "cpu",
            "n_samples": 2,
            "max_new_tokens": 3,
            "max_steps": 1,
        }
        given = {name: value for name, value in {**good, **changes}.items() if value is not None}
        flags = [word for name, value in given.items() for word in ("--" + name.replace("_", "-"), value)]
        return refused("train", *words, *flags)

    return run


@pytest.fixture(scope="session")
def answered_or_refused() -> Callable[..., bool]:
    """Calls; True for a result, False for an error that says how to mend the input. Anything else comes out."""

    def call(action: Callable[[], object]) -> bool:
        try:
            action()
        except DapoError as raised:
            error = raised
        else:
            return True
        assert error.exit_code == 2, error
        assert error.problem.strip()
        assert error.fix
        return False

    return call


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[..., Path]) -> Path:
    """A run folder of two updates, each saved. Only to be copied."""
    place = tmp_path_factory.mktemp("trained")
    rows = "".join(f'{{"prompt": "{letter}"}}\n' for letter in "abcdefgh")
    (place / "data.jsonl").write_text(rows)
    (place / "reward.py").write_text("def reward_fn(record):\n    return record.metadata['sample_index']\n")
    flags = {
        "ckpt": tiny_folder(),
        "dataset-path": place / "data.jsonl",
        "reward-fn-path": place / "reward.py",
        "save-path": place / "run",
        "reward-workers": 1,
        "train-devices": "cpu",
        "n-samples": 2,
        "max-new-tokens": 3,
        "batch-size": 2,
        "max-steps": 2,
        "save-interval": 1,
    }
    assert main(["train", *[word for name, value in flags.items() for word in (f"--{name}", str(value))]]) == 0
    return place / "run"


@pytest.fixture
def run_folder(workplace: Path, trained: Path) -> Path:
    """A copy of the run, to be harmed."""
    return Path(shutil.copytree(trained, "run"))
