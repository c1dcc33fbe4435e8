"""A model made from numbers: every byte is a token, and every tool loads it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from dapo.cli.main import main
from dapo.errors import ConfigError
from dapo.models.language_model import LanguageModel
from dapo.models.new_model import NewModelSettings, byte_tokenizer, save_new_model

SMALL = {"layers": 1, "hidden_size": 4, "heads": 2, "mlp_size": 8, "context": 16}
TOKENIZER = byte_tokenizer(512)


def config_of(folder: Path, **settings: Any) -> dict[str, Any]:
    save_new_model(NewModelSettings(**{**SMALL, **settings}), folder)
    return json.loads((folder / "config.json").read_text())


@pytest.fixture(scope="module")
def reloaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tokenizer")
    TOKENIZER.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def test_a_token_is_a_byte(reloaded: Any) -> None:
    """UTF-8: é is C3 A9, the euro sign E2 82 AC."""
    assert reloaded("aé€\n")["input_ids"] == [0x61, 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0x0A]
    assert len(reloaded) == 256 + 2


@given(text=st.text() | st.sampled_from(["<eos>", "a<pad>b", " , . n't  ", "\x00\r\n\t", "Ġ\u0100"]))
def test_every_text_comes_back_as_it_was(reloaded: Any, text: str) -> None:
    tokens = reloaded(text)["input_ids"]
    assert tokens == list(text.encode())
    assert reloaded.decode(tokens) == text
    assert reloaded.decode([*tokens, 256], skip_special_tokens=True) == text


def test_the_end_token_is_no_text_and_padding_is_another(reloaded: Any) -> None:
    assert (reloaded.eos_token, reloaded.eos_token_id) == ("<eos>", 256)
    assert (reloaded.pad_token, reloaded.pad_token_id) == ("<pad>", 257)
    assert 256 not in reloaded("say <eos>")["input_ids"]
    assert reloaded.bos_token is None
    assert reloaded.chat_template is None


def test_the_model_is_the_same_packed_and_in_plain_transformers(
    tmp_path: Path, load_checkpoint: Callable[..., LanguageModel], plain_logits: Callable[..., torch.Tensor]
) -> None:
    """The first loads as a run does, which compares packed attention with the module's own."""
    save_new_model(NewModelSettings(**SMALL), tmp_path)
    model = load_checkpoint(tmp_path)
    assert (model.stop_ids, model.context_length, model.dtype) == (frozenset({256}), 16, torch.float32)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)
    logits = plain(input_ids=torch.tensor([[104, 105, 33]])).logits[0]
    assert logits.dtype == torch.float32
    torch.testing.assert_close(plain_logits(model, [104, 105, 33]), logits)


def test_the_weights_are_float32_with_embeddings_kept_once(tmp_path: Path) -> None:
    """258 x 4 embeddings; q and o 4 x 4, k and v 2 x 4, three 8 x 4 of the feed-forward; norms 4 + 4 + 4."""
    assert save_new_model(NewModelSettings(**SMALL, kv_heads=1), tmp_path) == 1032 + 32 + 16 + 96 + 12
    tensors = load_file(tmp_path / "model.safetensors")
    assert sum(tensor.numel() for tensor in tensors.values()) == 1188
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    assert "lm_head.weight" not in tensors


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [
        ("layers", 3, "num_hidden_layers"),
        ("hidden_size", 12, "hidden_size"),
        ("heads", 1, "num_attention_heads"),
        ("kv_heads", 1, "num_key_value_heads"),
        ("mlp_size", 5, "intermediate_size"),
        ("context", 77, "max_position_embeddings"),
    ],
)
def test_each_setting_shapes_the_model(tmp_path: Path, name: str, value: int, key: str) -> None:
    assert config_of(tmp_path / "other", **{name: value})[key] == value
    assert config_of(tmp_path / "plain")[key] != value


def test_sizes_that_are_not_given_follow_from_the_others() -> None:
    """8/3 of 128 is 341.3, up to 11 x 32 = 352; of 96 it is 256 already."""
    assert NewModelSettings(hidden_size=128).feed_forward == 352
    assert NewModelSettings(hidden_size=96).feed_forward == 256
    assert NewModelSettings(heads=8).key_value_heads == 8


def test_the_tokenizer_knows_the_context(tmp_path: Path) -> None:
    config_of(tmp_path, context=77)
    assert AutoTokenizer.from_pretrained(tmp_path).model_max_length == 77


def test_the_seed_alone_decides_the_weights(tmp_path: Path) -> None:
    def weights(name: str, seed: int) -> str:
        config_of(tmp_path / name, seed=seed)
        return hashlib.sha256((tmp_path / name / "model.safetensors").read_bytes()).hexdigest()

    torch.manual_seed(5)
    first = weights("a", 1)
    assert torch.rand(1).item() == torch.rand(1, generator=torch.Generator().manual_seed(5)).item()
    assert weights("b", 1) == first
    assert weights("c", 2) != first


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"layers": 0}, "layers is 0"),
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"heads": 0}, "heads is 0"),
        ({"kv_heads": 0}, "kv_heads is 0"),
        ({"mlp_size": 0}, "mlp_size is 0"),
        ({"context": 1}, "context is 1"),
        ({"seed": -1}, "seed is -1"),
        ({"hidden_size": 100, "heads": 3}, "hidden_size is 100 but heads is 3"),
        ({"hidden_size": 12, "heads": 4}, "hidden_size is 12 but heads is 4"),
        ({"kv_heads": 3}, "kv_heads is 3 but heads is 4"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(settings: dict[str, int], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        NewModelSettings(**settings)


def test_the_command_writes_the_folder_and_says_what_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in {**SMALL, "kv_heads": 1, "seed": 3}.items()]
    assert main(["new-model", str(tmp_path / "tiny"), *flags]) == 0
    assert f"1.2k parameters, random; teach it with `dapo sft --ckpt {tmp_path / 'tiny'}`" in capsys.readouterr().out
    save_new_model(NewModelSettings(**SMALL, kv_heads=1, seed=3), tmp_path / "same")
    for path in (tmp_path / "same").iterdir():
        assert (tmp_path / "tiny" / path.name).read_bytes() == path.read_bytes()


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "note").write_text("mine")
    assert main(["new-model", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: OUT {tmp_path} exists\n  fix: name a folder that does not\n"
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


def test_bad_numbers_are_two_lines_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-model", str(tmp_path / "tiny"), "--layers", "many"]) == 2
    assert "error: layers is 'many'" in capsys.readouterr().err
    assert not (tmp_path / "tiny").exists()
