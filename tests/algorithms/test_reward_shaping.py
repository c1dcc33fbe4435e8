"""The soft overlong punishment, eq. 13, at its borders."""

from __future__ import annotations

import pytest
import torch

from dapo.algorithms.reward_shaping import compute_rule_reward, soft_overlong_punishment

# min(-(L - (max - buffer)) / buffer, 0), never below -1.
TABLE_20_4 = [(0, 0.0), (15, 0.0), (16, 0.0), (17, -0.25), (18, -0.5), (19, -0.75), (20, -1.0), (21, -1.0), (99, -1.0)]
PAPER = [(16384, 0.0), (16385, -1 / 4096), (18432, -0.5), (20480, -1.0), (20481, -1.0)]


@pytest.mark.parametrize(("length", "penalty"), TABLE_20_4)
def test_penalty_grows_in_a_line_over_the_buffer_b36_b38(length: int, penalty: float) -> None:
    """B36, and B38: limit 20, buffer 4, whatever the prompt was: 18 tokens cost -.5."""
    assert soft_overlong_punishment(length, 20, 4) == penalty


@pytest.mark.parametrize(("length", "penalty"), PAPER)
def test_penalty_at_the_papers_size_b36(length: int, penalty: float) -> None:
    assert soft_overlong_punishment(length, 20480, 4096) == pytest.approx(penalty, abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
def test_a_tensor_of_lengths_gives_the_same_numbers_in_its_shape(dtype: torch.dtype) -> None:
    lengths = torch.tensor([length for length, _ in TABLE_20_4]).to(dtype).view(3, 3)
    penalties = soft_overlong_punishment(lengths, 20, 4)
    assert penalties.shape == (3, 3)
    assert penalties.view(-1).tolist() == [penalty for _, penalty in TABLE_20_4]


def test_default_limit_is_4096_with_a_buffer_of_512() -> None:
    """3584 is free, 3840 is halfway, 4096 is the end."""
    assert [soft_overlong_punishment(length) for length in (3584, 3840, 4096)] == [0.0, -0.5, -1.0]


def test_an_int_gives_a_plain_float_without_a_negative_zero() -> None:
    penalty = soft_overlong_punishment(3, 20, 4)
    assert type(penalty) is float
    assert str(penalty) == "0.0"


def test_no_buffer_switches_the_penalty_off() -> None:
    assert soft_overlong_punishment(21, 20, 0) == 0.0
    assert soft_overlong_punishment(torch.tensor([5, 21]), 20, 0).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("buffer", [-1, 21])
def test_a_buffer_outside_the_limit_is_refused(buffer: int) -> None:
    with pytest.raises(ValueError, match=f"cache_length must lie in .*max_length=20.*got {buffer}"):
        soft_overlong_punishment(5, 20, buffer)


# +1 or -1 for the answer, plus the table above.
@pytest.mark.parametrize(
    ("is_correct", "length", "reward"),
    [(True, 10, 1.0), (True, 18, 0.5), (True, 20, 0.0), (False, 10, -1.0), (False, 18, -1.5), (False, 20, -2.0)],
)
def test_rule_reward_is_correctness_plus_punishment(is_correct: bool, length: int, reward: float) -> None:
    assert compute_rule_reward(is_correct, length, 20, 4) == reward


@pytest.mark.parametrize("buffer", [0, 4])
def test_penalties_stay_on_the_device_of_the_lengths(buffer: int) -> None:
    assert soft_overlong_punishment(torch.zeros(2, device="meta"), 20, buffer).device.type == "meta"


def test_rule_reward_of_many_answers() -> None:
    """Limit 20, buffer 4: right with 18 tokens 1 - 0.5, wrong with 30 tokens -1 - 1."""
    reward = compute_rule_reward(torch.tensor([True, False]), torch.tensor([18, 30]), 20, 4)
    assert reward.tolist() == [0.5, -2.0]
    assert compute_rule_reward(True, 3840) == 0.5  # 4096 and 512


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
def test_lengths_in_short_integers_do_not_overflow(dtype: torch.dtype) -> None:
    """20480 - 4096 fits neither a byte nor, less a length below 0, two."""
    assert soft_overlong_punishment(torch.tensor([100, 120], dtype=dtype), 20480, 4096).tolist() == [0.0, 0.0]
    assert soft_overlong_punishment(torch.tensor([112, 120], dtype=dtype), 120, 16).tolist() == [-0.5, -1.0]
