"""The engines that the contract is checked over: a new one is a line in ENGINES."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dapo.models.language_model import LanguageModel
from dapo.records import Draw
from dapo.rollout.engine import Rollout, RolloutEngine, answer_all
from dapo.rollout.settings import Sampling
from dapo.rollout.torch_engine import TorchEngine


def torch_engine(model: LanguageModel, slots: int) -> RolloutEngine:
    return TorchEngine(model, max_num_seqs=slots, kv_cache_gb=1.0)


ENGINES: dict[str, Callable[[LanguageModel, int], RolloutEngine]] = {"torch": torch_engine}


@pytest.fixture(params=ENGINES)
def make_engine(request: pytest.FixtureRequest) -> Callable[..., RolloutEngine]:
    """Every engine in turn, on a model, with at most `slots` answers side by side."""
    return lambda model, slots=64: ENGINES[request.param](model, slots)


@pytest.fixture(scope="session")
def generate() -> Callable[..., list[Rollout]]:
    """All rollouts of some draws, in the order of the draws."""

    def run(
        engine: RolloutEngine, draws: Sequence[Draw], *, n: int = 1, new: int = 12, seed: int = 0, **changes: Any
    ) -> list[Rollout]:
        sampling = Sampling(n=n, max_new_tokens=new, **changes)
        done = [rollout for rollout in answer_all(engine, draws, sampling, seed) if rollout is not None]
        place = {draw.id: number for number, draw in enumerate(draws)}
        return sorted(done, key=lambda rollout: place[rollout.draw.id])

    return run
