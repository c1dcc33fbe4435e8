"""Imports point one way: cli -> coordination -> the rooms -> algorithms, models, records, user files, words, errors."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import dapo

SOURCE = Path(dapo.__file__).parent
FOUNDATION = {"algorithms", "models", "records", "user_file", "places", "wording", "errors"}
ROOMS = {"sampling", "training", "rollout", "rewards", "data", "checkpoints", "tracking"}
READERS = {"dashboard", "evaluation"}

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "peers": set(),
    "kinds": {"wording"},
    "records": set(),
    "wording": set(),
    "places": {"wording"},
    "user_file": {"errors", "wording"},
    "algorithms": {"errors", "wording"},
    "models": {"errors", "places", "wording"},
    **dict.fromkeys(ROOMS, FOUNDATION),
    "dashboard": FOUNDATION | {"tracking"},
    "evaluation": FOUNDATION | ROOMS | {"coordination"},
    "config": FOUNDATION | {"peers", "kinds"},
    "coordination": FOUNDATION | ROOMS | {"config"},
    "cluster": FOUNDATION | ROOMS | {"config", "coordination"},
    "cli": FOUNDATION | ROOMS | READERS | {"config", "peers", "coordination", "cluster", "dapo"},
    "dapo": {"algorithms", "errors", "sampling"},
}
"""Room -> rooms it may import, besides itself. `dapo` is the package's own file, whose names load on first use.
`config` may also import any room's `settings`."""


def room_of(module: str) -> str:
    """`dapo.training.update` -> `training`; the package itself is `dapo`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def module_of(path: Path) -> str:
    parts = ["dapo", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(part for part in parts if part != "__init__")


def imports_of(text: str) -> list[str]:
    """Every module that a file imports, anywhere in it; a relative import is `.`."""
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += ["."] if node.level else [_imported_from(node.module or "", name.name) for name in node.names]
    return found


def _imported_from(module: str, name: str) -> str:
    """`from dapo import errors` imports a room, `from dapo import __version__` the package's own file."""
    is_room = module == "dapo" and ((SOURCE / name).is_dir() or (SOURCE / f"{name}.py").exists())
    return f"dapo.{name}" if is_room else module


def violations(module: str, imported: list[str]) -> list[str]:
    """What a module imports against the direction."""
    room = room_of(module)
    wrong = []
    for name in imported:
        if name == ".":
            wrong.append(f"{module} imports relatively: name the module in full")
        if name.split(".")[0] != "dapo":
            continue
        other = room_of(name)
        is_settings = room == "config" and name.endswith(".settings")
        if other != room and other not in ALLOWED[room] and not is_settings:
            wrong.append(f"{module} imports {name}")
    return wrong


FILES = sorted(SOURCE.rglob("*.py"))


def test_every_room_has_its_place_in_the_order() -> None:
    assert {room_of(module_of(path)) for path in FILES} <= set(ALLOWED)


@pytest.mark.parametrize("path", FILES, ids=[module_of(path) for path in FILES])
def test_a_module_imports_only_what_lies_below_it(path: Path) -> None:
    assert violations(module_of(path), imports_of(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", sorted((SOURCE / "algorithms").glob("*.py")), ids=lambda path: path.stem)
def test_algorithms_need_torch_and_the_standard_library_only(path: Path) -> None:
    outside = {name.split(".")[0] for name in imports_of(path.read_text(encoding="utf-8"))}
    assert outside <= set(sys.stdlib_module_names) | {"torch", "dapo"}


# The test itself: each of these would be a wrong turn.
@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("dapo.training.update", "from dapo.sampling.settings import CollectionSettings"),
        ("dapo.rollout.engine", "from dapo.coordination.run import train"),
        ("dapo.algorithms.dapo", "from dapo.records import Group"),
        ("dapo.algorithms.dapo", "def f():\n    import dapo.models.loading"),
        ("dapo.coordination.run", "from dapo.cli.main import main"),
        ("dapo.config", "from dapo.training.update import Trainer"),
        ("dapo.data.rows", "from dapo import config"),
        ("dapo.data.rows", "from dapo import training"),
        ("dapo.coordination.run", "from dapo.dashboard.plots import plot_runs"),
        ("dapo.coordination.run", "from dapo.evaluation.evaluate import evaluate"),
        ("dapo.tracking.display", "from dapo.evaluation.report import Report"),
        ("dapo.models.loading", "from . import settings"),
        ("dapo.user_file", "from dapo.records import Prompt"),
        ("dapo.wording", "from dapo.errors import DapoError"),
    ],
)
def test_a_wrong_turn_is_seen(module: str, line: str) -> None:
    assert len(violations(module, imports_of(line))) == 1


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("dapo.config", "from dapo.training.settings import TrainingSettings"),
        ("dapo.training.update", "from dapo.training.settings import TrainingSettings"),
        ("dapo.coordination.run", "from dapo.config import RunConfig"),
        ("dapo.cli.main", "from dapo import __version__"),
        ("dapo.algorithms.dapo", "import torch"),
    ],
)
def test_a_right_turn_is_let_through(module: str, line: str) -> None:
    assert violations(module, imports_of(line)) == []
