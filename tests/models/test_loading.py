"""Checkpoints in and out: any tool reads what is written, and what cannot be read is said in one line."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from dapo.errors import ConfigError, DapoError, ModelError
from dapo.models import loading
from dapo.models.loading import check_can_be_saved, load_tokenizer, locate, save_model
from dapo.models.settings import ModelSettings


@pytest.fixture
def copied_folder(tiny_folder, tmp_path_factory):
    """Makes a copy of the tiny model's folder with these keys put into its json files."""

    def make(**files):
        folder = tmp_path_factory.mktemp("copied") / "model"
        shutil.copytree(tiny_folder(), folder)
        for name, keys in files.items():
            path = folder / f"{name}.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))
        return folder

    return make


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


def test_tokenizer_template_and_generation_config_go_with_the_model(
    load_checkpoint, copied_folder, tmp_path, tokenizer
):
    folder = copied_folder(generation_config={"eos_token_id": [0, 7]})
    save_model(load_checkpoint(folder), tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.chat_template == tokenizer.chat_template
    assert loaded("1+1")["input_ids"] == tokenizer("1+1")["input_ids"]
    assert AutoModelForCausalLM.from_pretrained(tmp_path).generation_config.eos_token_id == [0, 7]


HARD_TO_WRITE = {
    "sampling without do_sample (Vicuna, early Llama 2 chat)": {"temperature": 0.9, "top_p": 0.6},
    "top_k without do_sample": {"top_k": 20},
    "a padding id of -1": {"pad_token_id": -1},
    "beams without beam search": {"num_beams": 1, "early_stopping": True},
    "a key that nobody knows": {"made_by": "a person"},
}


@pytest.mark.parametrize("keys", HARD_TO_WRITE.values(), ids=HARD_TO_WRITE)
def test_a_generation_config_that_the_library_reads_but_will_not_write_is_saved_as_it_came(
    load_checkpoint, copied_folder, tmp_path, keys
):
    folder = copied_folder(generation_config=keys)
    model = load_checkpoint(folder)
    check_can_be_saved(model)
    for saved in (tmp_path / "first", tmp_path / "second"):
        save_model(model, saved)
        assert (saved / "generation_config.json").read_bytes() == (folder / "generation_config.json").read_bytes()
        model = load_checkpoint(saved)


def test_where_no_generation_config_came_none_is_saved(load_checkpoint, copied_folder, tmp_path):
    folder = copied_folder()
    (folder / "generation_config.json").unlink()
    save_model(load_checkpoint(folder), tmp_path)
    assert not (tmp_path / "generation_config.json").exists()
    assert load_checkpoint(tmp_path).stop_ids == {0}


def test_a_padding_id_of_minus_1_in_the_model_s_config_is_no_obstacle(load_checkpoint, copied_folder, tmp_path):
    """As in the first Llama."""
    folder = copied_folder(config={"pad_token_id": -1})
    (folder / "generation_config.json").unlink()
    save_model(load_checkpoint(folder), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["pad_token_id"] == -1


def test_what_cannot_be_saved_is_refused_before_anything_is_computed(load_tiny, monkeypatch):
    model = load_tiny()
    monkeypatch.setattr(type(model.tokenizer), "save_pretrained", lambda *_: json.dumps(object()))
    with pytest.raises(ModelError, match="LlamaForCausalLM could be trained but not saved: Object of type object is"):
        check_can_be_saved(model)


def test_a_full_disk_at_that_is_the_disk_s_fault(load_tiny, monkeypatch):
    model = load_tiny()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(model.tokenizer), "save_pretrained", full)
    with pytest.raises(DapoError, match=r"cannot write temporary files to .*: No space left on device") as refused:
        check_can_be_saved(model)
    assert "TMPDIR" in refused.value.fix


def test_a_head_beside_a_config_that_ties_it_is_refused(load_checkpoint, copied_folder):
    """The folder's own head would be trained; whoever believes the config loads another model."""
    with pytest.raises(ModelError, match=r"tie_word_embeddings is on in the model's config.json, but its weights hold"):
        load_checkpoint(copied_folder(config={"tie_word_embeddings": True}))


def test_a_saved_model_can_be_trained_on(load_tiny, load_checkpoint, tmp_path):
    """No trace of our attention is left in it that would keep us, or others, from loading it again."""
    save_model(load_tiny(), tmp_path)
    assert "dapo_packed" not in (tmp_path / "config.json").read_text()
    load_checkpoint(tmp_path)


def test_a_folder_is_where_it_is_and_a_hub_id_is_left_to_the_hub(tiny_folder, monkeypatch):
    monkeypatch.setattr(loading, "hub_has", lambda name, kind: None)
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
