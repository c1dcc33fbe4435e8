"""What is a path, what may be a hub id, and what is said when neither is there."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub.constants
import huggingface_hub.utils
import pytest

from dapo.cli.main import main
from dapo.places import hub_has, is_path, nearest_place


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("runs/final").mkdir(parents=True)
    Path("data").mkdir()
    Path("data/train.jsonl").write_text('{"prompt": "a", "answer": "1"}\n')
    Path("data/recipe.toml").write_text("")
    return tmp_path


@pytest.mark.parametrize("name", ["./m", "../m", "/m", "~/m", "a/b/c", "m/", "a/b/", "runs/finl", "runs/x"])
def test_a_path(here: Path, name: str) -> None:
    assert is_path(name)


@pytest.mark.parametrize("name", ["gpt2", "Qwen/Qwen2.5-0.5B", "runs", "other/final"])
def test_what_may_be_a_hub_id(here: Path, name: str) -> None:
    assert not is_path(name)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("runs/finl", "runs/final"),
        ("rnus/final", "runs/final"),
        ("data/trian.jsonl", "data/train.jsonl"),
        ("./data/trian.jsonl", "data/train.jsonl"),
        ("qqqq/final", None),
        ("runs/final", None),
    ],
)
def test_the_nearest_place_differs_by_one_misspelt_part(here: Path, name: str, place: str | None) -> None:
    assert nearest_place(name) == place


EVAL = ["eval", "--reward", "math", "--device", "cpu"]
MODEL = "name an existing folder, a hub id such as owner/name, or smollm2-135m"
SWITCHED_OFF = "the hub is switched off (HF_HUB_OFFLINE)"


@pytest.mark.parametrize(
    ("words", "error", "fix"),
    [
        (
            [*EVAL, "--ckpt", "runs/finl", "--dataset-path", "data/train.jsonl"],
            "ckpt runs/finl does not exist: no such folder",
            f"did you mean runs/final? {MODEL}",
        ),
        (
            [*EVAL, "--ckpt", "smollm-135m", "--dataset-path", "data/train.jsonl"],
            f"ckpt smollm-135m does not exist: it is no folder here, and as a hub id {SWITCHED_OFF}",
            "did you mean smollm2-135m? name an existing folder, a hub id that can be reached, or smollm2-135m",
        ),
        (
            [*EVAL, "--ckpt", "m", "--dataset-path", "data/trian.jsonl"],
            "data/trian.jsonl does not exist",
            "did you mean data/train.jsonl?",
        ),
        (
            [*EVAL, "--ckpt", "m", "--dataset-path", "data/train"],
            "data/train does not exist",
            "did you mean data/train.jsonl?",
        ),
        (
            [*EVAL, "--ckpt", "m", "--dataset-path", "owner/rows"],
            f"owner/rows is no file or folder here, and as a hub id {SWITCHED_OFF}",
            "check the name, the network and your access",
        ),
        (
            ["train", "--resume", "runs/finl"],
            "runs/finl is not a run folder: no such folder",
            "did you mean runs/final?",
        ),
        (
            ["export", "rnus/final", "--out", "o"],
            "rnus/final is not a run folder: no such folder",
            "did you mean runs/final?",
        ),
        (["train", "data/recpie.toml"], "recipe data/recpie.toml does not exist", "did you mean data/recipe.toml?"),
    ],
)
def test_a_place_that_is_not_there_is_said_at_once_with_the_nearest_name(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    error: str,
    fix: str,
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert main(words) == 2
    assert capsys.readouterr().err == f"error: {error}\n  fix: {fix}\n"


class Hub:
    """Answers with a status and counts how often it was asked."""

    def __init__(self, status: int | Exception) -> None:
        self.status, self.asked = status, []

    def get(self, url: str, **how: object) -> Hub:
        self.asked.append((url, how["timeout"]))
        if isinstance(self.status, Exception):
            raise self.status
        self.status_code = self.status
        return self


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (200, None),
        (404, "the hub does not give it (HTTP 404)"),
        (OSError("no route to host"), "the hub cannot be reached (no route to host)"),
    ],
)
def test_the_hub_is_asked_once_with_a_short_limit(
    monkeypatch: pytest.MonkeyPatch, status: int | Exception, reason: str | None
) -> None:
    hub = Hub(status)
    monkeypatch.setattr(huggingface_hub.utils, "get_session", lambda: hub)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    assert hub_has("owner/name", "model") == reason
    assert hub.asked == [(f"{huggingface_hub.constants.ENDPOINT}/api/models/owner/name", 5.0)]


def test_what_is_in_the_cache_needs_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    (tmp_path / "models--owner--name").mkdir()
    assert hub_has("owner/name", "model") is None
    assert hub_has("owner/other", "model") == SWITCHED_OFF
