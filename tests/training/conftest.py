"""Trainers on tiny models, and what an update changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dapo.algorithms.settings import Algorithm
from dapo.models.language_model import LanguageModel
from dapo.training.batch import Answer
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


@pytest.fixture
def uniform(table_model: Callable[..., LanguageModel]) -> LanguageModel:
    """Every one of its 64 tokens is equally likely everywhere."""
    return table_model(torch.zeros(64, 64))


@pytest.fixture
def at_ratio(answer: Callable[..., Answer]) -> Callable[..., Answer]:
    """An answer of `length` tokens whose every ratio is `ratio` under the uniform model."""

    def make(group: int, length: int, advantage: float, ratio: float = 1.0) -> Answer:
        return answer(group, (5, 6), (7,) * length, advantage, (-math.log(64) - math.log(ratio),) * length)

    return make


@pytest.fixture
def batch(answer: Callable[..., Answer]) -> list[Answer]:
    """Six answers of three groups, of 1 to 6 tokens, with prompts of 1 to 5."""
    return [
        answer(0, (5, 9, 12), (7, 3, 0), 1.0),
        answer(0, (5, 9, 12), (8,), -1.0),
        answer(1, (4, 11, 13, 2, 6), (2, 2, 9, 4, 30, 0), 0.5),
        answer(1, (4, 11, 13, 2, 6), (3, 5), -0.5),
        answer(2, (6,), (9, 17, 21, 0), 2.0),
        answer(2, (6,), (9, 0), -2.0),
    ]
