"""The flash kernel's way to lay out families, beside the tiles' way; the kernel itself where there is a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dapo.models import varlen_attention
from dapo.models.packed_attention import Family, FamilyAttention
from dapo.models.varlen_attention import VarlenAttention, family_attention

SHAPES = {
    "a prompt alone": [Family(5)],
    "answers that share a prompt": [Family(3, [4, 1, 2])],
    "an answer whose only token is predicted": [Family(3, [0, 2])],
    "several families": [Family(2, [3]), Family(6, [2, 2, 7]), Family(1), Family(4, [1])],
}


def sequence_by_sequence(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_ends: Tensor,
    key_ends: Tensor,
    most_queries: int,
    most_keys: int,
    *,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool,
) -> Tensor:
    """What the kernel is documented to compute, in plain operations: states (T, H, D), queries at their keys' end."""
    assert query_ends.dtype == key_ends.dtype == torch.int32
    assert window_size == (-1, 0)
    outputs = []
    for number in range(len(query_ends) - 1):
        q = query[query_ends[number] : query_ends[number + 1]].transpose(0, 1)
        k, v = (states[key_ends[number] : key_ends[number + 1]].transpose(0, 1) for states in (key, value))
        assert q.shape[1] <= most_queries
        assert k.shape[1] <= most_keys
        sees = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
        outputs.append(F.scaled_dot_product_attention(q, k, v, attn_mask=sees, scale=scale, enable_gqa=enable_gqa))
    return torch.cat(outputs, dim=1).transpose(0, 1)


def states(families: list[Family], device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Query of 4 heads, key and value of 2, for all packed tokens."""
    total = sum(family.prompt + sum(family.answers) for family in families)
    generator = torch.Generator().manual_seed(total)
    made = [torch.randn(1, heads, total, 16, generator=generator) for heads in (4, 2, 2)]
    return [one.to(device, dtype).requires_grad_() for one in made]


def outputs_and_gradients(attention: Any, inputs: list[Tensor]) -> list[Tensor]:
    out = attention.attend(0, *inputs, 0.25)
    weights = torch.arange(out.numel(), device=out.device, dtype=out.dtype).view(out.shape) / out.numel()
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), inputs)]


@pytest.mark.parametrize("families", SHAPES.values(), ids=SHAPES)
def test_both_ways_give_the_same_attention_and_gradients(monkeypatch, families):
    monkeypatch.setattr(varlen_attention, "varlen_attn", sequence_by_sequence)
    varlen, tiles = VarlenAttention(families, "cpu"), FamilyAttention(families, torch.float32, "cpu")
    assert varlen.position_T.tolist() == tiles.position_T.tolist()
    assert varlen.longest == tiles.longest
    inputs = states(families)
    for ours, theirs in zip(outputs_and_gradients(varlen, inputs), outputs_and_gradients(tiles, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_the_kernel_reads_a_prompt_s_keys_before_each_answer_s_own():
    """Prompt at 0 1 2, answers at 3 4 and at 5; the second prompt at 6 7: 3 + 5 + 4 + 2 keys for 8 queries."""
    attention = VarlenAttention([Family(3, [2, 1]), Family(2)], "cpu")
    assert attention._key_place.tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 5, 6, 7]
    assert attention._query_ends.tolist() == [0, 3, 5, 6, 8]
    assert attention._key_ends.tolist() == [0, 3, 8, 12, 14]


def test_the_kernel_is_chosen_where_it_exists():
    """It computes in half precision on a GPU from Ampere (8.0) on, for heads whose width is a multiple of 8."""
    families = [Family(3, [2])]
    assert isinstance(family_attention(families, torch.bfloat16, torch.device("cpu"), 64), FamilyAttention)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(varlen_attention, "VarlenAttention", lambda families, device: ("varlen", device.type))
        patch.setattr(varlen_attention, "FamilyAttention", lambda families, dtype, device: ("tiles", device.type))
        cuda = torch.device("cuda", 0)
        for capability, dtype, width, chosen in (
            ((8, 0), torch.bfloat16, 64, "varlen"),
            ((9, 0), torch.float16, 256, "varlen"),
            ((9, 0), torch.float32, 64, "tiles"),
            ((7, 5), torch.float16, 64, "tiles"),
            ((8, 0), torch.bfloat16, 36, "tiles"),
            ((8, 0), torch.bfloat16, 264, "tiles"),
        ):
            patch.setattr(torch.cuda, "get_device_capability", lambda device, given=capability: given)
            assert family_attention(families, dtype, cuda, width) == (chosen, "cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("families", SHAPES.values(), ids=SHAPES)
def test_the_kernel_computes_what_the_tiles_do(families):
    """bfloat16 has 8 bits: values of about 1 differ by some hundredths."""
    inputs = states(families, "cuda", torch.bfloat16)
    device = torch.device("cuda")
    ours = outputs_and_gradients(family_attention(families, torch.bfloat16, device, inputs[0].shape[-1]), inputs)
    theirs = outputs_and_gradients(FamilyAttention(families, torch.bfloat16, device), inputs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=3e-2, rtol=3e-2)
