"""Packed sequences that share a prompt score as if each ran alone through the plain module."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dapo.errors import ModelError
from dapo.models import packed_attention
from dapo.models.checks import CountedAttention
from dapo.models.packed_attention import Family, FamilyAttention

# A prompt and its answers, as token ids; families of one sequence, of several, of equal and of very short parts.
FAMILIES = {
    "one sequence": [((5, 9, 12, 7, 30), ())],
    "several sequences": [((5, 9, 12), ()), ((7,), ()), ((8, 8, 3, 41, 6, 2, 19), ())],
    "answers that share a prompt": [((5, 9, 12), ((7, 3), (8,), (9, 10, 11, 4, 2)))],
    "several families": [((5, 9), ((7, 3), (8,))), ((4, 11, 13, 2, 6, 7), ((2, 2, 2), (2,), (3, 5))), ((6,), ((9,),))],
    "an answer whose only token is predicted": [((5, 9, 3), ((), (7,), ()))],
    "parts of exactly 4 and 8 tokens": [
        ((1, 2, 3, 4), ((5, 6, 7, 8), (9, 10, 11, 12, 13, 14, 15, 16))),
        ((3,) * 8, ()),
    ],
}


def packed(families: Sequence[tuple]) -> tuple[Tensor, FamilyAttention]:
    tokens = [token for prompt, answers in families for token in (*prompt, *(t for answer in answers for t in answer))]
    shape = [Family(len(prompt), [len(answer) for answer in answers]) for prompt, answers in families]
    return torch.tensor(tokens), FamilyAttention(shape, torch.float32, "cpu")


def sequences(families: Sequence[tuple]) -> list[tuple[list[int], list[int]]]:
    """Each sequence as ids, and where its own tokens lie in the packed row: a prompt once, then each answer."""
    found, start = [], 0
    for prompt, answers in families:
        at_prompt = list(range(start, start + len(prompt)))
        start += len(prompt)
        found.append((list(prompt), at_prompt))
        for answer in answers:
            found.append(([*prompt, *answer], at_prompt + list(range(start, start + len(answer)))))
            start += len(answer)
    return found


@pytest.mark.parametrize("tile", [1, 3, 4, 5, 256])
@pytest.mark.parametrize("heads", [{"num_key_value_heads": 2}, {"num_key_value_heads": 4}], ids=["GQA", "MHA"])
@pytest.mark.parametrize("families", FAMILIES.values(), ids=FAMILIES)
def test_packed_logits_are_those_of_each_sequence_alone(monkeypatch, load_tiny, plain_logits, families, heads, tile):
    """Tiles smaller than a sequence, of one token, and larger than everything."""
    monkeypatch.setattr(packed_attention, "TILE_TOKENS", tile)
    model = load_tiny(**heads)
    tokens, packing = packed(families)
    with torch.no_grad():
        logits = model.logits(model.hidden(tokens, packing.position_T, packing))
        for ids, places in sequences(families):
            torch.testing.assert_close(logits[places], plain_logits(model, ids), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tile", [3, 4, 256])
@pytest.mark.parametrize("name", ["answers that share a prompt", "several families", "parts of exactly 4 and 8 tokens"])
def test_packed_gradients_of_every_parameter_are_those_of_each_sequence_alone(
    monkeypatch, load_tiny, plain_logits, name, tile
):
    """The prompt's keys gather the gradients of all answers that look at them."""
    monkeypatch.setattr(packed_attention, "TILE_TOKENS", tile)
    families = FAMILIES[name]
    together, alone = load_tiny(), load_tiny()
    tokens, packing = packed(families)
    weight = torch.linspace(-1, 1, len(tokens))[:, None]  # so that no two tokens count alike
    logits = together.logits(together.hidden(tokens, packing.position_T, packing))
    (logits.log_softmax(-1) * weight * torch.cos(torch.arange(logits.shape[1]))).sum().backward()
    seen: set[int] = set()
    for ids, places in sequences(families):
        new = [(place, at) for at, place in enumerate(places) if place not in seen]  # a prompt counts once
        seen.update(places)
        if new:
            own = plain_logits(alone, ids)[[at for _, at in new]].log_softmax(-1)
            (own * weight[[place for place, _ in new]] * torch.cos(torch.arange(own.shape[1]))).sum().backward()
    for (label, ours), theirs in zip(together.module.named_parameters(), alone.module.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=2e-5, rtol=1e-4, msg=lambda m, n=label: f"{n}: {m}")


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.tuples(st.integers(1, 9), st.lists(st.integers(0, 9), max_size=4)), min_size=1, max_size=4),
    tile=st.integers(1, 12),
)
def test_any_shape_in_any_tiles_attends_like_one_big_mask(shape, tile):
    """Against the definition: a token sees its own answer up to itself, and its prompt."""
    families = [Family(prompt, answers) for prompt, answers in shape]
    total = sum(family.prompt + sum(family.answers) for family in families)
    unit = [
        (number, which)
        for number, family in enumerate(families)
        for which, length in enumerate((family.prompt, *family.answers))
        for _ in range(length)
    ]
    sees = torch.tensor(
        [
            [a[0] == b[0] and b[1] in (0, a[1]) and at_b <= at_a for at_b, b in enumerate(unit)]
            for at_a, a in enumerate(unit)
        ]
    )
    generator = torch.Generator().manual_seed(total)
    query = torch.randn(1, 4, total, 8, generator=generator)
    key, value = (torch.randn(1, 2, total, 8, generator=generator) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_attention, "TILE_TOKENS", tile)
        ours = FamilyAttention(families, torch.float32, "cpu").attend(0, query, key, value, 0.5)
    scores = query @ key.repeat_interleave(2, 1).transpose(2, 3) * 0.5
    plain = scores.masked_fill(~sees, float("-inf")).softmax(-1) @ value.repeat_interleave(2, 1)
    torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-5)


def test_positions_of_answers_go_on_where_the_prompt_ends():
    """Prompt 0 1 2, answers 3 4 and 3; then a prompt of its own from 0."""
    packing = FamilyAttention([Family(3, [2, 1]), Family(2)], torch.float32, "cpu")
    assert packing.position_T.tolist() == [0, 1, 2, 3, 4, 3, 0, 1]
    assert packing.longest == 5


def test_activation_checkpointing_changes_no_gradient(load_tiny):
    tokens, packing = packed(FAMILIES["several families"])
    gradients = []
    for checkpointing in (False, True):
        model = load_tiny(activation_checkpointing=checkpointing)
        counted = CountedAttention(packing)
        model.logits(model.hidden(tokens, packing.position_T, counted)).square().sum().backward()
        assert counted.calls == (4 if checkpointing else 2)  # both layers, and both again in the backward pass
        gradients.append([parameter.grad for parameter in model.module.parameters()])
    for plain, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, recomputed)


def test_a_sequence_longer_than_the_sliding_window_is_refused_and_a_shorter_one_is_not(
    load_checkpoint, tmp_path, tokenizer
):
    """A window of 10 tokens: 10 fit, 11 do not."""
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=10, eos_token_id=0, bos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    MistralForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = load_checkpoint(tmp_path)
    for length, fits in ((10, True), (11, False)):
        tokens, packing = packed([((3,) * 4, ((3,) * (length - 4), (3,)))])
        if fits:
            model.hidden(tokens, packing.position_T, packing)
        else:
            with pytest.raises(ModelError, match="11 tokens is longer than the model's sliding window of 10"):
                model.hidden(tokens, packing.position_T, packing)
