"""What the rest of the package relies on: end ids, context, dtype, and that nothing is computed wrongly in silence."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from dapo.errors import ModelError
from dapo.models.checks import check_model
from dapo.models.packed_attention import Family, FamilyAttention


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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("family", "changes", "where"),
    [
        ("Gemma2", {"final_logit_softcapping": 30.0, "initializer_range": 0.02}, "head"),
        ("Gemma2", {"final_logit_softcapping": 2.0}, "head"),
        ("Granite", {"logits_scaling": 1.5}, "head"),
        ("Cohere", {"logit_scale": 0.0625}, "head"),
    ],
    ids=["a cap far above a new model's logits", "a low cap", "a divisor", "a factor"],
)
def test_a_model_that_does_more_to_its_logits_is_refused(load_checkpoint, family_folder, family, changes, where, dtype):
    """Gemma 2's tanh(logits / 30) x 30 changes logits of 0.1 by less than 1e-6, and is seen all the same."""
    with pytest.raises(
        ModelError, match=f"{family}ForCausalLM computes something.*results of its {where} differ"
    ) as no:
        load_checkpoint(family_folder(family, **changes), dtype)
    assert "Llama" in no.value.fix


def test_a_model_that_caps_its_scores_is_refused(load_checkpoint, family_folder):
    with pytest.raises(ModelError, match="score capping"):
        load_checkpoint(family_folder("Gemma2", attn_logit_softcapping=50.0))


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Falcon", {}),
        ("GPTJ", {"rotary_dim": 4, "num_key_value_heads": None}),
        ("GPTNeo", {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]}),
    ],
)
def test_an_attention_that_cannot_be_replaced_is_named(load_checkpoint, family_folder, family, changes):
    with pytest.raises(ModelError, match="has an attention of its own, which packed attention cannot stand in") as no:
        load_checkpoint(family_folder(family, **changes))
    assert "Llama" in no.value.fix


@pytest.mark.parametrize("family", ["StableLm", "Nemotron"])
def test_layers_that_do_not_learn_of_the_packing_are_named(load_checkpoint, family_folder, family):
    with pytest.raises(ModelError, match="does not hand on to its layers what packed attention needs"):
        load_checkpoint(family_folder(family))


def test_a_model_that_draws_in_evaluation_mode_too_is_refused(load_checkpoint, family_folder, monkeypatch):
    """Its answers could never be scored again."""
    from transformers.models.llama.modeling_llama import LlamaMLP

    plain = LlamaMLP.forward
    monkeypatch.setattr(LlamaMLP, "forward", lambda self, x: torch.nn.functional.dropout(plain(self, x), 0.1))
    with pytest.raises(ModelError, match=r"results of its (second pass|attention) differ"):
        load_checkpoint(family_folder("Llama"))


def test_a_model_that_learns_in_training_mode_alone_is_refused(load_checkpoint, family_folder, monkeypatch):
    """As experts that are run by a faster way without gradients in evaluation mode."""
    from transformers.models.llama.modeling_llama import LlamaMLP

    plain = LlamaMLP.forward
    monkeypatch.setattr(LlamaMLP, "forward", lambda self, x: torch.no_grad()(plain)(self, x))
    with pytest.raises(ModelError, match=r"passes no gradient through layers\.0\.mlp\.gate_proj in evaluation mode"):
        load_checkpoint(family_folder("Llama"))


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
    check_model(model)
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
