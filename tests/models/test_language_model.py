"""What the rest of the package relies on: end ids, context, dtype, and that nothing is computed wrongly in silence."""

from __future__ import annotations

import pytest
import torch
from transformers import CohereConfig, CohereForCausalLM, Gemma2Config, Gemma2ForCausalLM, GPT2Config, GPT2LMHeadModel

from dapo.errors import ModelError
from dapo.models.packed_attention import Family, FamilyAttention

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "eos_token_id": 0,
    "bos_token_id": None,
    "pad_token_id": 0,
    "initializer_range": 0.5,
}


def packed_logits(model, tokens):
    packing = FamilyAttention([Family(len(tokens))], model.dtype, "cpu")
    with torch.no_grad():
        return model.logits(model.hidden(torch.tensor(tokens), packing.position_T, packing))


def saved(module, tokenizer, folder):
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_float32_means_float32_and_bfloat16_has_an_effect(load_tiny, plain_logits):
    """B18: float32 equals the plain forward to 1e-6; bfloat16, with 8 significant bits, does not come near."""
    tokens = [5, 9, 12, 7, 30, 3]
    exact, coarse = load_tiny(dtype="float32"), load_tiny(dtype="bfloat16")
    assert exact.dtype == torch.float32
    assert coarse.dtype == torch.bfloat16
    with torch.no_grad():
        right = plain_logits(exact, tokens).log_softmax(-1)
    torch.testing.assert_close(packed_logits(exact, tokens).log_softmax(-1), right, atol=1e-6, rtol=1e-6)
    gap = (packed_logits(coarse, tokens).float().log_softmax(-1) - right).abs().max()
    assert 1e-3 < gap < 0.5


def test_auto_is_float32_on_a_cpu(load_tiny):
    assert load_tiny(dtype="auto").dtype == torch.float32


@pytest.mark.parametrize("attention_cap", [None, 50.0], ids=["cap on logits", "cap on logits and on scores"])
def test_a_model_that_caps_its_logits_is_refused(load_checkpoint, tmp_path, tokenizer, attention_cap):
    """Gemma 2: tanh(logits / 2) x 2, which the packed way does not compute."""
    config = Gemma2Config(
        **SMALL, head_dim=8, final_logit_softcapping=2.0, attn_logit_softcapping=attention_cap, sliding_window=64
    )
    with pytest.raises(ModelError, match=r"Gemma2ForCausalLM computes|score capping") as refused:
        load_checkpoint(saved(Gemma2ForCausalLM(config), tokenizer, tmp_path))
    assert attention_cap or "Llama" in refused.value.fix


def test_a_model_that_scales_its_logits_is_refused(load_checkpoint, tmp_path, tokenizer):
    """Cohere multiplies its logits by logit_scale."""
    module = CohereForCausalLM(CohereConfig(**SMALL, logit_scale=0.0625))
    with pytest.raises(ModelError, match="CohereForCausalLM computes something that packed attention does not"):
        load_checkpoint(saved(module, tokenizer, tmp_path))


def test_a_model_whose_positions_are_embeddings_is_packed_like_any_other(
    load_checkpoint, tmp_path, tokenizer, plain_logits
):
    """GPT-2 has no rotary positions: an answer's must go on after its prompt's, not after its sibling's."""
    config = GPT2Config(
        vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, eos_token_id=0, bos_token_id=0,
        initializer_range=0.3,
    )  # fmt: skip
    model = load_checkpoint(saved(GPT2LMHeadModel(config), tokenizer, tmp_path))
    packing = FamilyAttention([Family(3, [2, 2])], torch.float32, "cpu")
    with torch.no_grad():
        tokens = torch.tensor([5, 9, 12, 7, 8, 30, 3])
        logits = model.logits(model.hidden(tokens, packing.position_T, packing))
        plain = plain_logits(model, [5, 9, 12, 30, 3])
    torch.testing.assert_close(logits[[0, 1, 2, 5, 6]], plain, atol=1e-5, rtol=1e-5)


def test_the_check_leaves_the_model_in_packed_attention(load_tiny):
    model = load_tiny()
    model.check()
    assert model.module.config._attn_implementation == "dapo_packed"


def test_every_end_id_of_tokenizer_model_and_generation_config_stops(load_checkpoint, tiny_folder, tmp_path, tokenizer):
    """B21: an instruct model often ends its turn with another id than the tokenizer's, named in a list."""
    from transformers import GenerationConfig, LlamaForCausalLM

    module = LlamaForCausalLM.from_pretrained(tiny_folder())
    module.config.eos_token_id = [5, 6]
    module.generation_config = GenerationConfig(eos_token_id=[7, 0])
    assert load_checkpoint(saved(module, tokenizer, tmp_path)).stop_ids == {0, 5, 6, 7}


def test_one_end_id_alone_is_enough(load_tiny):
    assert load_tiny().stop_ids == {0}


def test_the_context_is_the_model_s_own(load_tiny):
    assert load_tiny().context_length == 128
    assert load_tiny(max_position_embeddings=48).context_length == 48
