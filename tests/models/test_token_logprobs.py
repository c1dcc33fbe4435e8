"""Log-probabilities and entropy, block by block, against the plain formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dapo.models import token_logprobs as module
from dapo.models.token_logprobs import token_logprobs

T, W, V = 7, 5, 11


def inputs(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(T, W, generator=generator).to(dtype).requires_grad_()
    head = torch.randn(V, W, generator=generator).to(dtype).requires_grad_()
    return hidden, head, torch.tensor([0, 10, 3, 3, 7, 1, 9])


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
@pytest.mark.parametrize("rows", [(1, 1), (2, 1), (3, 2), (5, 99), (99, 3), (99, 99)])
def test_values_and_gradients_are_those_of_log_softmax_and_gather(monkeypatch, temperature, rows):
    """7 tokens in blocks and slices of at most these many rows; only the last block's logits are kept."""
    monkeypatch.setattr(module, "BLOCK_BYTES", rows[0] * V * 4)  # float32
    monkeypatch.setattr(module, "SLICE_ENTRIES", rows[1] * V + 5)  # not quite one row more
    weight = torch.tensor([1.0, -2.0, 0.5, 3.0, 0.0, -1.0, 2.0])
    hidden, head, targets = inputs()
    logp, entropy = token_logprobs(hidden, head, targets, temperature)
    (logp * weight).sum().backward()
    ours = hidden.grad, head.grad
    plain_hidden, plain_head, _ = inputs()
    distribution = (plain_hidden @ plain_head.T / temperature).log_softmax(-1)
    plain = distribution.gather(-1, targets[:, None])[:, 0]
    (plain * weight).sum().backward()
    torch.testing.assert_close(logp, plain, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(entropy, -(distribution.exp() * distribution).sum(-1), atol=2e-6, rtol=0)
    torch.testing.assert_close(ours[0], plain_hidden.grad, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours[1], plain_head.grad, atol=1e-5, rtol=1e-5)


def test_a_uniform_distribution_over_4_tokens_has_entropy_ln_4():
    """B86: ln 4 = 1.386294, and each token has -ln 4."""
    logp, entropy = token_logprobs(torch.ones(3, 2), torch.ones(4, 2), torch.tensor([0, 1, 3]), 1.0)
    assert entropy.tolist() == pytest.approx([1.386294] * 3, abs=1e-6)
    assert logp.tolist() == pytest.approx([-1.386294] * 3, abs=1e-6)


def test_entropy_of_a_tempered_distribution_is_that_of_the_tempered_one():
    """Logits 0 and ln 9 at temperature 2 are 0 and ln 3: 1/4 and 3/4, entropy ln 4 - 3/4 ln 3 = 0.562335."""
    head = torch.tensor([[0.0], [math.log(9.0)]])
    logp, entropy = token_logprobs(torch.ones(1, 1), head, torch.tensor([1]), 2.0)
    assert entropy.item() == pytest.approx(0.562335, abs=1e-6)
    assert logp.item() == pytest.approx(math.log(0.75), abs=1e-6)


def test_bfloat16_logits_are_divided_and_normalised_in_float32():
    """B12: the logits 8 and 0 are exact in bfloat16, ln(1 + e^(-8 / 0.9)) is not, nor is 8 / 0.9."""
    hidden = torch.ones(1, 1, dtype=torch.bfloat16)
    head = torch.tensor([[8.0], [0.0]], dtype=torch.bfloat16)
    for target, right in ((0, -math.log1p(math.exp(-8 / 0.9))), (1, -8 / 0.9 - math.log1p(math.exp(-8 / 0.9)))):
        logp, entropy = token_logprobs(hidden, head, torch.tensor([target]), 0.9)
        assert logp.dtype == entropy.dtype == torch.float32
        assert logp.item() == pytest.approx(right, abs=1e-6)


def test_gradients_come_in_the_dtype_of_the_weights():
    hidden, head, targets = inputs(torch.bfloat16)
    logp, _ = token_logprobs(hidden, head, targets, 1.0)
    logp.sum().backward()
    exact_hidden, exact_head, _ = inputs()
    token_logprobs(exact_hidden, exact_head, targets, 1.0)[0].sum().backward()
    assert hidden.grad.dtype == head.grad.dtype == torch.bfloat16
    torch.testing.assert_close(head.grad.float(), exact_head.grad, atol=0.1, rtol=0.05)


def test_entropy_carries_no_gradient():
    """It is a diagnostic; a loss on it would be silently wrong."""
    hidden, head, targets = inputs()
    _, entropy = token_logprobs(hidden, head, targets, 1.0)
    assert not entropy.requires_grad


class WidestLogits(TorchDispatchMode):
    """Most rows of any tensor over the vocabulary that is made meanwhile."""

    rows = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.dim() == 2 and out.shape[1] == V and len(out) != W:  # not the head
            self.rows = max(self.rows, len(out))
        return out


def test_no_block_of_logits_is_larger_than_the_limit(monkeypatch):
    """B86: 2 V float32 numbers allow 2 of 7 rows at a time, forward and backward."""
    monkeypatch.setattr(module, "BLOCK_BYTES", 2 * V * 4)
    hidden, head, targets = inputs()
    with WidestLogits() as widest:
        token_logprobs(hidden, head, targets, 1.0)[0].sum().backward()
    assert widest.rows == 2
