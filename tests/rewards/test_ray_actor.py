"""Scores are the same inside a Ray actor. Runs where Ray is installed, which the package itself does not need."""

import pytest

from dapo.records import Completion, Prompt
from dapo.rewards.pool import RewardPool
from dapo.rewards.settings import RewardSettings

ray = pytest.importorskip("ray")

TEXTS = (r"\boxed{7}", "I do not know.", r"\boxed{137}", "", r"\boxed{\frac{14}{2}}")


def scores() -> list[float]:
    with RewardPool(RewardSettings(reward="math")) as pool:
        answers = [Completion((), (), text, "stop") for text in TEXTS]
        return [score.value for score in pool.score(Prompt(0, "", (1,), answer="7"), answers)]


@pytest.mark.slow
def test_scores_in_a_ray_actor_equal_those_of_the_main_thread():
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)

    @ray.remote
    class Scorer:
        def scores(self) -> list[float]:
            return scores()

    try:
        assert ray.get(Scorer.remote().scores.remote(), timeout=120) == scores() == [1.0, 0.0, 0.0, 0.0, 1.0]
    finally:
        ray.shutdown()
