"""Trainers on tiny models, and what an update changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from dapo.algorithms.settings import Algorithm
from dapo.models.language_model import LanguageModel
from dapo.training.settings import TrainingSettings
from dapo.training.update import Trainer


@pytest.fixture(scope="session")
def make_trainer(algorithm: Callable[..., Algorithm]) -> Callable[..., Trainer]:
    """A trainer by settings; `algorithm` settings go in as a mapping."""

    def make(
        model: LanguageModel, *, choices: dict[str, Any] | None = None, temperature: float = 1.0, **settings: Any
    ) -> Trainer:
        return Trainer(
            model,
            TrainingSettings(**{"weight_decay": 0.0, **settings}),
            algorithm(**(choices or {})),
            temperature=temperature,
            max_new_tokens=20,
        )

    return make


@pytest.fixture(scope="session")
def weights() -> Callable[[LanguageModel], dict[str, Tensor]]:
    """A copy of every parameter."""
    return lambda model: {name: parameter.detach().clone() for name, parameter in model.module.named_parameters()}
