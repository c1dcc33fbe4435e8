"""What is written of an update is what was generated and trained."""

import pytest

from dapo.coordination.step_metrics import collection_metrics, reward_metrics
from dapo.records import Completion, Group, Prompt, Score
from dapo.sampling.dynamic_sampler import Collection, CollectionCounts
from dapo.training.batch import JudgedGroup


def group(number: int, rewards: list[float], lengths: list[int] = (1, 1), version: int = 0) -> Group:
    completions = tuple(Completion((1,) * length, (-1.0,) * length, "", "stop") for length in lengths)
    scores = tuple(Score(reward, {"acc": float(reward > 0)}) for reward in rewards)
    return Group(number, Prompt(number, "", (1,)), completions, scores, version)


def test_shares_of_solved_groups_count_the_groups_that_were_generated():
    """B92: groups [1,1], [0,0], [1,0], [1,1]: 2 all right, 1 all wrong, 1 of 4 kept."""
    counts = CollectionCounts(rounds=1, generated=4, kept=1, all_correct=2, all_wrong=1)
    metrics = collection_metrics(Collection((group(2, [1, 0]),), counts), buffered=0)
    assert metrics["dapo_all_correct_groups"] == 2
    assert metrics["dapo_all_wrong_groups"] == 1
    assert metrics["dapo_filtered_groups"] == 3
    assert metrics["dapo_sampling_efficiency"] == 0.25
    assert metrics["dapo_all_correct_share"] == 0.5


def test_where_no_group_was_generated_there_is_no_share():
    assert collection_metrics(Collection((), CollectionCounts()), buffered=0)["dapo_all_correct_share"] is None


def collected(*generated: Group, trained: tuple[Group, ...] = (), dropped: tuple[Group, ...] = ()) -> Collection:
    return Collection(trained, CollectionCounts(), tuple((each, "constant") for each in dropped), generated)


def test_the_logged_reward_is_the_one_trained_on_and_the_candidates_are_logged_beside_it():
    """B92, B29: trained [0.7, 0.0] -> 0.35; with the dropped [1, 1] the candidates' mean is 2.7 / 4."""
    trained, dropped = group(0, [0.7, 0.0]), group(1, [1.0, 1.0])
    collection = collected(trained, dropped, trained=(trained,), dropped=(dropped,))
    metrics = reward_metrics(collection, [JudgedGroup(trained, (0.0, -0.5), (1.0, -1.0))])
    assert metrics["dapo_raw_reward_mean"] == pytest.approx(0.35)
    assert metrics["dapo_shaped_reward_mean"] == pytest.approx(0.1)
    assert metrics["dapo_overlong_penalty_mean"] == -0.25
    assert metrics["candidate_reward_mean"] == pytest.approx(0.675)
    assert metrics["reward/acc"] == 0.75


def test_the_longest_answer_is_a_maximum_not_a_mean_of_maxima():
    """B94: two groups with longest 7 and 9 -> 9 (the bug says 8)."""
    metrics = reward_metrics(collected(group(0, [1, 0], [3, 7]), group(1, [1, 0], [5, 9])), [])
    assert metrics["response_length_max"] == 9
    assert metrics["response_length_mean"] == 6


def test_groups_are_counted_in_the_update_that_generated_them():
    """Of four groups one is trained and one dropped, two wait; another that waited before is trained beside it.

    Rewards 1 0, 0 0, 0.25 0 and 1 0 are 2.25 of 8 answers; without the two that wait it would be 1 of 4.
    """
    trained, dropped, waits, too = group(1, [1, 0]), group(2, [0, 0]), group(3, [0.25, 0]), group(4, [1, 0], [9, 1])
    earlier = group(0, [1, 1], [30, 30])
    collection = collected(trained, dropped, waits, too, trained=(earlier, trained), dropped=(dropped,))
    metrics = reward_metrics(collection, [])
    assert metrics["candidate_reward_mean"] == 0.28125
    assert metrics["reward/acc"] == 0.375
    assert metrics["response_length_max"] == 9
    assert metrics["response_length_mean"] == 2.0


def test_an_update_without_new_answers_has_no_lengths():
    """B90: nothing to average is null, not a crash."""
    metrics = reward_metrics(collected(trained=(group(0, [1, 0]),)), [])
    assert metrics["response_length_mean"] is None
    assert metrics["response_length_max"] is None
