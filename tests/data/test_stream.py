"""Which prompt comes next, now and after a resume."""

from __future__ import annotations

from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dapo.data import PromptStream
from dapo.errors import ConfigError, DataError
from dapo.records import Prompt


def prompts(count: int) -> list[Prompt]:
    return [Prompt(index, str(index), (index,)) for index in range(count)]


def stream(count: int, *, epochs: int | None = 1, seed: int = 0, position: int = 0) -> PromptStream:
    return PromptStream(prompts(count), epochs=epochs, seed=seed, position=position)


def indices(source: PromptStream, n: int) -> list[int]:
    return [draw.prompt.index for draw in source.take(n)]


def test_30_prompts_in_batches_of_16_are_16_and_14_each_once_then_none() -> None:
    """B28: 30 = 16 + 14."""
    source = stream(30)
    batches = [indices(source, 16) for _ in range(4)]
    assert [len(batch) for batch in batches] == [16, 14, 0, 0]
    assert sorted(chain(*batches)) == list(range(30))
    assert source.exhausted


def test_fewer_prompts_than_a_batch_are_one_smaller_batch() -> None:
    """B28: 10 prompts, batch 16."""
    assert len(stream(10).take(16)) == 10


def test_drawing_goes_on_over_the_epoch_border() -> None:
    """30 prompts, 2 epochs, 25 at a time: 25, then 5 + 20, then 10."""
    source = stream(30, epochs=2)
    batches = [indices(source, 25) for _ in range(3)]
    assert [len(batch) for batch in batches] == [25, 25, 10]
    drawn = list(chain(*batches))
    assert sorted(drawn[:30]) == sorted(drawn[30:]) == list(range(30))


def test_epochs_have_different_orders() -> None:
    """B74: 12! orders, so that equal ones mean a fixed order."""
    source = stream(12, epochs=20)
    orders = [tuple(indices(source, 12)) for _ in range(20)]
    assert len(set(orders)) == 20


def test_the_seed_decides_the_order_and_nothing_else_does() -> None:
    """B74"""
    orders = [indices(stream(12, epochs=2, seed=seed), 24) for seed in range(10)]
    assert len({tuple(order) for order in orders}) == 10
    assert indices(stream(12, epochs=2, seed=3), 24) == orders[3]
    assert indices(stream(12, epochs=None, seed=3), 24) == orders[3]


def test_seed_and_epoch_are_not_added_up() -> None:
    """Seed 0 in epoch 1 must not repeat seed 1 in epoch 0."""
    source = stream(12, epochs=2, seed=0)
    source.take(12)
    assert indices(source, 12) != indices(stream(12, seed=1), 12)


def test_the_order_is_the_same_on_every_machine() -> None:
    """Pinned: an order that changes with a version of NumPy would break the resume of older runs."""
    assert indices(stream(8, epochs=2), 16) == [6, 3, 5, 0, 7, 2, 1, 4, 3, 1, 0, 4, 5, 6, 7, 2]


@pytest.mark.parametrize("step", [2, 3])
def test_a_resumed_stream_sees_what_the_unbroken_one_sees(step: int) -> None:
    """B65: 12 prompts, 4 per step, 2 epochs; step 3 is the epoch border."""
    unbroken = stream(12, epochs=2)
    steps = [unbroken.take(4) for _ in range(6)]
    resumed = stream(12, epochs=2, position=4 * step)
    assert [resumed.take(4) for _ in range(step, 6)] == steps[step:]
    assert resumed.take(4) == []


@given(
    count=st.integers(1, 20),
    epochs=st.integers(1, 4),
    seed=st.integers(0, 2**40),
    sizes=st.lists(st.integers(0, 30), max_size=6),
)
def test_position_is_the_whole_state(count: int, epochs: int, seed: int, sizes: list[int]) -> None:
    first = stream(count, epochs=epochs, seed=seed)
    drawn = [draw for size in sizes for draw in first.take(size)]
    assert first.position == len(drawn) == min(sum(sizes), count * epochs)
    second = stream(count, epochs=epochs, seed=seed, position=first.position)
    rest = second.take(count * epochs)
    assert rest == first.take(count * epochs)
    assert [draw.id for draw in drawn + rest] == list(range(count * epochs))


def test_position_epoch_and_remaining_follow_the_draws() -> None:
    source = stream(5, epochs=2)
    seen = []
    for _ in range(4):
        seen.append((source.position, source.epoch, source.remaining, source.exhausted))
        source.take(4)
    assert seen == [(0, 0, 10, False), (4, 0, 6, False), (8, 1, 2, False), (10, 2, 0, True)]


def test_without_a_number_of_epochs_the_stream_never_ends() -> None:
    source = stream(3, epochs=None, position=3_000_000)
    assert sorted(indices(source, 3)) == [0, 1, 2]
    assert (source.epoch, source.remaining, source.exhausted) == (1_000_001, None, False)


def test_without_shuffling_each_epoch_is_the_order_given() -> None:
    source = PromptStream(prompts(3), epochs=2, seed=0, shuffle=False)
    assert indices(source, 4) == [0, 1, 2, 0]
    later = PromptStream(prompts(3), epochs=2, seed=0, position=4, shuffle=False)
    assert indices(later, 9) == indices(source, 9) == [1, 2]


def test_draw_numbers_go_on_over_epochs() -> None:
    ids = [draw.id for draw in stream(4, epochs=3).take(12)]
    assert all(after == before + 1 for before, after in pairwise(ids))


def test_settings_and_states_that_cannot_be_are_refused() -> None:
    with pytest.raises(DataError, match="no prompts"):
        stream(0)
    with pytest.raises(ConfigError, match="epochs is 0"):
        stream(4, epochs=0)
    with pytest.raises(ConfigError, match="seed is -1"):
        stream(4, seed=-1)
    with pytest.raises(DataError, match="data position 5 is outside the 4 draws"):
        stream(4, position=5)
    with pytest.raises(DataError, match="data position -1"):
        stream(4, position=-1)
    assert stream(4, position=4).exhausted
