"""Checkpoints in and out: any tool reads what is written, and what cannot be read is said in one line."""

from __future__ import annotations

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from dapo.errors import ConfigError, ModelError
from dapo.models.loading import load_tokenizer, locate, save_model
from dapo.models.settings import ModelSettings


def where(ckpt, **settings):
    return locate(ModelSettings(ckpt=str(ckpt), **settings))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "not tied"])
def test_what_is_saved_loads_in_plain_transformers_with_the_same_logits(load_tiny, plain_logits, tmp_path, tied, dtype):
    model = load_tiny(tie_word_embeddings=tied, dtype=dtype)
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.add_(0.125)  # so that what is saved is what was trained
    save_model(model, tmp_path / "final")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "final", dtype="auto")
    assert loaded.dtype == model.dtype
    tokens = [5, 9, 12, 7]
    with torch.no_grad():
        theirs = loaded(input_ids=torch.tensor([tokens])).logits[0].float()
        torch.testing.assert_close(
            theirs, plain_logits(model, tokens), atol=1e-5 if dtype == "float32" else 0.1, rtol=0
        )


def test_tied_weights_are_written_once_and_are_one_when_loaded(load_tiny, tmp_path):
    save_model(load_tiny(tie_word_embeddings=True), tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert "model.embed_tokens.weight" in file.keys()  # noqa: SIM118
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


def test_tokenizer_template_and_generation_config_go_with_the_model(load_tiny, tmp_path, tokenizer):
    model = load_tiny()
    model.module.generation_config.eos_token_id = [0, 7]
    save_model(model, tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.chat_template == tokenizer.chat_template
    assert loaded("1+1")["input_ids"] == tokenizer("1+1")["input_ids"]
    assert AutoModelForCausalLM.from_pretrained(tmp_path).generation_config.eos_token_id == [0, 7]


def test_a_saved_model_can_be_trained_on(load_tiny, load_checkpoint, tmp_path):
    """No trace of our attention is left in it that would keep us, or others, from loading it again."""
    save_model(load_tiny(), tmp_path)
    assert "dapo_packed" not in (tmp_path / "config.json").read_text()
    load_checkpoint(tmp_path)


def test_a_folder_is_where_it_is_and_a_hub_id_is_left_to_the_hub(tiny_folder):
    folder = tiny_folder()
    assert where(folder) == str(folder)
    assert where("owner/name") == "owner/name"


@pytest.mark.parametrize("ckpt", ["./nowhere", "/nowhere/at/all", "~/no/such/model", "smollm", "a/b/c"])
def test_a_path_that_does_not_exist_is_refused_without_asking_a_hub(ckpt):
    with pytest.raises(ModelError, match="does not exist") as refused:
        where(ckpt)
    assert "smollm2-135m" in refused.value.fix


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"without config\.json"):
        where(tmp_path)


def test_a_damaged_tokenizer_is_one_clear_error(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="cannot load the tokenizer of"):
        load_tokenizer(str(tmp_path), ModelSettings(ckpt=str(tmp_path)))


def test_weights_in_a_pickle_are_not_loaded(load_checkpoint, tiny_folder, tokenizer, tmp_path):
    """No pickle is read from a folder that a person hands over."""
    AutoModelForCausalLM.from_pretrained(tiny_folder()).config.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot load the model of"):
        load_checkpoint(tmp_path)


def test_modelscope_is_asked_for_hub_ids_alone(monkeypatch, tiny_folder):
    """`model_hub` decides where a hub id is looked up; without the package, that is said."""
    import sys

    monkeypatch.setitem(sys.modules, "modelscope", None)
    assert where(tiny_folder(), model_hub="modelscope") == str(tiny_folder())
    with pytest.raises(ModelError, match="package modelscope is not installed"):
        where("owner/name", model_hub="modelscope")


def test_a_run_without_a_model_is_refused():
    with pytest.raises(ConfigError, match="ckpt is not set"):
        ModelSettings()
