"""Two, three and four real processes make the update that one makes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from dapo.training.ranks import Ranks

PROCESS = Path(__file__).with_name("rank_process.py")
WATCHDOG_S = 120

ANSWERS = [
    (0, (5, 9, 12), (7, 3, 0), (-2.0, -1.5, -1.0), 1.0),
    (0, (5, 9, 12), (8,), (-2.5,), -1.0),
    (1, (4, 11, 13, 2, 6), (2, 2, 9, 4, 30, 0), (-2.0,) * 6, 0.5),
    (1, (4, 11, 13, 2, 6), (3, 5), (-3.0, -1.0), -0.5),
    (2, (6,), (9, 17, 21, 0), (-1.0,) * 4, 2.0),
]
UNIFORM = -math.log(64)
CASES = {
    # 5 answers in one pass: 3 + 2, or 2 + 2 + 1
    "uneven": {"answers": ANSWERS, "settings": {"mini_bs": 5}},
    # B81: one answer, so that one rank or two have nothing at all
    "fewer answers than ranks": {"answers": ANSWERS[:1], "settings": {"mini_bs": 5}},
    # steps of 2 x 2 answers and of 1, in passes of 2: most passes leave a rank of three idle
    "several steps": {"answers": ANSWERS, "settings": {"mini_bs": 2, "gradient_accumulation_steps": 2}},
    # B79: rank 0 cuts its share into more passes than the others, which get empty ones
    "some passes empty": {"answers": ANSWERS, "settings": {"mini_bs": 5, "max_tokens_per_pass": 6}},
    "mean over answers": {"answers": ANSWERS, "settings": {"mini_bs": 5}, "algorithm": {"algo": "grpo"}},
    "bfloat16": {"answers": ANSWERS, "settings": {"mini_bs": 5}, "dtype": "bfloat16"},
}


@pytest.fixture(scope="module")
def cases(tiny_folder, table_model, tmp_path_factory):
    """B03: a uniform model and two answers, of 2 tokens with loss 1 and of 6 with loss 3, one for each of two ranks."""
    folder = str(tiny_folder())
    every = {name: {"ckpt": folder, "dtype": "float32", "algorithm": {}, **case} for name, case in CASES.items()}
    uniform = table_model(torch.zeros(64, 64)).module.config._name_or_path
    two = [(0, (5, 6), (7,) * 2, (UNIFORM,) * 2, -1.0), (1, (5, 6), (7,) * 6, (UNIFORM,) * 6, -3.0)]
    every["B03"] = {"ckpt": uniform, "dtype": "float32", "algorithm": {}, "answers": two, "settings": {"mini_bs": 2}}
    return every


def run(cases, folder, size):
    """What each rank ended with, by case. Fails when a process hangs or dies."""
    (folder / "cases.json").write_text(json.dumps(cases))
    ranks = [
        subprocess.Popen([sys.executable, str(PROCESS), str(folder), str(rank), str(size)], stderr=subprocess.PIPE)
        for rank in range(size)
    ]
    try:
        for process in ranks:
            _, error = process.communicate(timeout=WATCHDOG_S)
            assert process.returncode == 0, error.decode()[-2000:]
    finally:
        for process in ranks:
            process.kill()
    return {name: [torch.load(folder / f"{name}-{rank}-of-{size}.pt") for rank in range(size)] for name in cases}


@pytest.fixture(scope="module")
def results(cases, tmp_path_factory):
    return {size: run(cases, tmp_path_factory.mktemp(f"ranks{size}"), size) for size in (1, 2, 3, 4)}


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", [*CASES, "B03"])
def test_every_rank_ends_with_the_weights_and_the_numbers_of_one_process(results, name, size):
    """B03, B79, B81: float32 weights to 1e-6; loss, norm and token metrics alike on every rank."""
    ((alone, numbers),) = results[1][name]
    exact = name != "bfloat16"  # whose backward passes round differently for each cut
    for weights, theirs in results[size][name]:
        for label, weight in weights.items():
            torch.testing.assert_close(weight, alone[label], atol=1e-6 if exact else 5e-3, rtol=0)
        for metric, value in theirs.items():
            assert value == pytest.approx(numbers[metric], rel=1e-5 if exact else 5e-2, abs=1e-6), metric


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", CASES)
def test_ranks_stay_equal_bit_for_bit(results, name, size):
    first, *others = (weights for weights, _ in results[size][name])
    for other in others:
        assert all(torch.equal(first[label], other[label]) for label in first)


def test_the_loss_over_ranks_is_divided_by_the_tokens_of_all(results):
    """B03: (2 x 1 + 6 x 3) / 8 = 2.5; a mean of rank means is 2.0."""
    for size in (1, 2, 3, 4):
        for _, numbers in results[size]["B03"]:
            assert numbers["loss"] == pytest.approx(2.5, abs=1e-5)
            assert numbers["tokens"] == 8


def test_what_ranks_exchange_is_brought_to_where_their_group_computes(monkeypatch):
    """NCCL refuses a CPU's tensors: sums in float64 are made on the GPU and come back."""
    there = torch.tensor([3.0, 4.0])
    monkeypatch.setattr(dist, "get_rank", lambda group: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda group: 2)
    monkeypatch.setattr(dist, "get_backend", lambda group: "nccl")
    seen = []
    monkeypatch.setattr(dist, "all_reduce", lambda tensor, group: seen.append(tensor))
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, device: there if device.type == "cuda" else tensor)
    mine = torch.tensor([1.5, 2.0])
    assert Ranks(object()).sum(mine) is mine
    assert seen[0] is there
    assert mine.tolist() == [3.0, 4.0]
