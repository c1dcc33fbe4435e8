"""What `dapo` offers to people with their own loop, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dapo

PUBLIC = [
    "DAPOConfig",
    "DAPODynamicSampler",
    "DAPOLoss",
    "DapoError",
    "compute_group_advantages",
    "compute_rule_reward",
    "is_valid_dapo_group",
    "soft_overlong_punishment",
]
HEAVY = {"torch", "transformers", "ray", "vllm", "numpy", "datasets", "pydantic", "fastapi", "starlette", "flask"}


def test_public_names_are_these_and_sorted() -> None:
    assert dapo.__all__ == PUBLIC == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_is_the_object_of_that_name(name: str) -> None:
    assert getattr(dapo, name).__name__ == name
    assert getattr(dapo, name).__doc__
    assert name in dir(dapo)


def test_any_other_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'dapo' has no attribute 'DAPOLos'"):
        dapo.DAPOLos  # noqa: B018


def test_importing_dapo_loads_nothing_heavy() -> None:
    """In a process of its own: here everything is loaded already."""
    code = "import sys, dapo; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "dapo" in loaded
    assert not HEAVY & set(loaded)


def test_the_version_is_the_distributions() -> None:
    from importlib.metadata import version

    assert dapo.__version__ == version("dapo-rl")
