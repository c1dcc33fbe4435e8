"""Model folders as people have them after a bad download, a bad merge, or from somebody who means harm.

Whatever is in one: it loads, checks out and answers a prompt, or it is refused in two lines. Nothing in it is run or
unpickled.
"""

from __future__ import annotations

import json
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from dapo.data.prompts import encode_prompts
from dapo.data.rows import Row
from dapo.data.settings import DataSettings
from dapo.errors import ModelError
from dapo.models.loading import load_model, load_tokenizer
from dapo.models.settings import ModelSettings
from dapo.records import Draw
from dapo.rollout.engine import answer_all
from dapo.rollout.settings import Sampling
from dapo.rollout.torch_engine import TorchEngine

SEEDED = settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
Refused = Callable[..., Any]
Outcome = Callable[..., bool]


@pytest.fixture
def folder(workplace: Path, tiny_folder: Callable[..., Path]) -> Path:
    """A copy of a good model folder, to be harmed."""
    return Path(shutil.copytree(tiny_folder(), "model"))


@pytest.fixture
def as_it_was(folder: Path) -> Callable[[str, bytes], None]:
    """Restores the folder and then gives one file this content: for many examples in one test."""
    good = {path.name: path.read_bytes() for path in folder.iterdir()}

    def harm(name: str, content: bytes) -> None:
        for known, right in good.items():
            (folder / known).write_bytes(right)
        (folder / name).write_bytes(content)

    return harm


def use(folder: Path) -> None:
    """All that a run does with a model before it makes its folder, and an answer to a prompt."""
    given = ModelSettings(ckpt=str(folder))
    tokenizer = load_tokenizer(str(folder), given)
    data = DataSettings(dataset_path="rows.jsonl")
    rows = [Row(0, "line 1", "a", None, {}), Row(1, "line 2", ({"role": "user", "content": "b"},), None, {})]
    prompts = encode_prompts(rows, data, tokenizer).prompts
    model = load_model(str(folder), tokenizer, given, torch.device("cpu"))
    engine = TorchEngine(model, max_num_seqs=4, kv_cache_gb=0.1)
    engine.check(prompts, 2)
    draws = [Draw(number, prompt) for number, prompt in enumerate(prompts)]
    rollouts = [each for each in answer_all(engine, draws, Sampling(n=2, max_new_tokens=2), seed=1) if each]
    assert len(rollouts) == 2


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 3, 7, 64, 2**40, 2**63, 1e308, -0.5, "", "a", "llama", "</s>", [], [0], [[1]], {}]),
    st.sampled_from([{"a": 1}, ["x"], [None], {"rope_type": "yarn"}, {"content": 3}, "{{ 1 / 0 }}", "{% for %}"]),
)
HOLDS_A_SIZE = {"num_hidden_layers", "vocab_size", "hidden_size", "intermediate_size"}
"""Huge ones would only fill the memory: the library makes all layers before it looks at the weights."""


@SEEDED
@given(data=st.data())
def test_any_value_in_any_config_answers_or_is_refused(
    folder: Path, as_it_was: Callable[[str, bytes], None], answered_or_refused: Outcome, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(["config.json", "generation_config.json", "tokenizer_config.json"]))
    as_it_was("unharmed", b"")
    content = json.loads((folder / name).read_text())
    key = data.draw(st.sampled_from([*content, "quantization_config", "tie_word_embeddings", "pad_token", "bos_token"]))
    value = data.draw(JUNK)
    if key in HOLDS_A_SIZE and isinstance(value, int | float) and value > 100:
        value = 100
    as_it_was(name, json.dumps({**content, key: value}).encode())
    answered_or_refused(lambda: use(folder))


@SEEDED
@given(data=st.data())
def test_any_damage_to_any_file_answers_or_is_refused(
    folder: Path, as_it_was: Callable[[str, bytes], None], answered_or_refused: Outcome, data: st.DataObject
) -> None:
    as_it_was("unharmed", b"")
    name = data.draw(st.sampled_from(sorted(path.name for path in folder.iterdir())))
    good = (folder / name).read_bytes()
    end = min(len(good), 4000)  # of the weights, mostly the header
    at, cut = data.draw(st.integers(0, end)), data.draw(st.integers(0, 40))
    rest = data.draw(st.just(b"") | st.binary(max_size=8).map(lambda noise: noise + good[at + cut :]))
    as_it_was(name, good[:at] + rest)
    answered_or_refused(lambda: use(folder))


def weights(header: dict[str, Any], body: bytes) -> bytes:
    """A safetensors file as the format says: 8 bytes of length, a JSON header, the tensors."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def one(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"model.embed_tokens.weight": {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}}


LIES = {
    "empty": b"",
    "seven bytes": b"\0" * 7,
    "a header of 2^63 bytes": struct.pack("<Q", 2**63),
    "a header longer than the file": struct.pack("<Q", 1000) + b"{}",
    "no JSON": struct.pack("<Q", 4) + b"oops",
    "no object": struct.pack("<Q", 2) + b"[]",
    "no tensors": weights({}, b""),
    "nested deeply": struct.pack("<Q", 50_000) + b"[" * 50_000,
    "offsets beyond the file": weights(one("F32", [2, 2], 0, 16), b"\0" * 8),
    "offsets backwards": weights(one("F32", [2], 8, 0), b"\0" * 8),
    "negative offsets": weights(one("F32", [2], -8, 0), b"\0" * 8),
    "a shape that is not the size": weights(one("F32", [3], 0, 8), b"\0" * 8),
    "a shape that overflows": weights(one("F32", [2**32, 2**32], 0, 8), b"\0" * 8),
    "an unknown dtype": weights(one("Q4", [2], 0, 8), b"\0" * 8),
    "integers": weights(one("I64", [1], 0, 8), b"\0" * 8),
    "a pickle": pickle.dumps({"weight": 1}),
    "a zip archive": b"PK\x03\x04" + b"\0" * 40,
    "an answer of a web server": b"<!DOCTYPE html><html>404</html>",
    "a pointer of git lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 80000\n",
}


@pytest.mark.parametrize("lie", LIES)
def test_weights_that_lie_about_themselves_are_refused(folder: Path, lie: str) -> None:
    (folder / "model.safetensors").write_bytes(LIES[lie])
    with pytest.raises(ModelError, match=r"cannot load the model of|lack \d+ tensors") as caught:
        use(folder)
    assert caught.value.fix


def test_missing_tensors_are_named_and_not_made_up(folder: Path) -> None:
    """The library fills them with random numbers and only logs it. Both layers lack their up projection."""
    tensors = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if "up_proj" not in name}
    assert len(tensors) - len(kept) == 2
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lack 2 tensors, such as model\.layers\.0\.mlp\.up_proj\.weight"):
        use(folder)


def test_a_tied_head_is_no_missing_tensor(tiny_folder: Callable[..., Path]) -> None:
    use(tiny_folder(tie_word_embeddings=True))


@pytest.mark.parametrize("change", ["transposed", "one row short", "flat"])
def test_tensors_of_another_shape_are_refused(folder: Path, change: str) -> None:
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.down_proj.weight"
    changed = {"transposed": tensors[name].T, "one row short": tensors[name][1:], "flat": tensors[name].flatten()}
    save_file({**tensors, name: changed[change].contiguous()}, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="cannot load the model of"):
        use(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(folder: Path, value: float) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mlp.down_proj.weight"][0, 0] = value
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="not finite"):
        use(folder)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_file_is_refused_before_the_run_folder_is_made(folder: Path, refused_run: Refused, file: str) -> None:
    (folder / file).unlink()
    assert str(folder) in refused_run(ckpt=f"./{folder}").error


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_truncated_file_is_refused_before_the_run_folder_is_made(
    folder: Path, refused_run: Refused, file: str
) -> None:
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: len(content) // 2])
    assert str(folder) in refused_run(ckpt=f"./{folder}").error


class Bomb:
    """Unpickling it writes a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open, ("unpickled", "w")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors", "adapter_model.bin", "training_args.bin"])
def test_a_pickle_in_a_model_folder_is_never_loaded(folder: Path, refused_run: Refused, name: str) -> None:
    """Alone, under the name of the weights, or beside missing weights. The bomb itself works."""
    (folder / "model.safetensors").unlink()
    with (folder / name).open("wb") as file:
        pickle.dump(Bomb(), file)
    assert "cannot load the model of" in refused_run(ckpt=f"./{folder}").error
    assert not Path("unpickled").exists()
    pickle.loads((folder / name).read_bytes()).close()
    assert Path("unpickled").exists()


REMOTE = """
from transformers import LlamaConfig, LlamaForCausalLM

class Config(LlamaConfig):
    open("remote_code_ran", "w").close()

class Model(LlamaForCausalLM):
    pass
"""


@pytest.mark.parametrize("model_type", ["llama", "nobody_knows_this"])
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_that_comes_with_a_model_is_not_run_unless_asked_for(folder: Path, file: str, model_type: str) -> None:
    """A type that the library knows uses the library's own code; another one cannot be loaded without."""
    (folder / "remote.py").write_text(REMOTE)
    (folder / "tokenization.py").write_text(REMOTE + "class Own: pass\n")
    content = json.loads((folder / file).read_text())
    maps = {
        "config.json": {"AutoConfig": "remote.Config", "AutoModelForCausalLM": "remote.Model"},
        "tokenizer_config.json": {"AutoTokenizer": ["tokenization.Own", None]},
    }
    changed = {**content, "auto_map": maps[file]}
    if file == "config.json":
        changed["model_type"] = model_type
    (folder / file).write_text(json.dumps(changed))
    try:
        use(folder)
    except ModelError as refusal:
        error: ModelError | None = refusal
    else:
        error = None
    assert not Path("remote_code_ran").exists()
    if (file, model_type) == ("config.json", "nobody_knows_this"):
        assert error is not None
        assert error.fix


def test_code_that_comes_with_a_model_runs_when_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above shows something: the same module does leave its mark."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(Path("cache").absolute()))
    (folder / "remote.py").write_text(REMOTE)
    content = json.loads((folder / "config.json").read_text())
    changed = {**content, "auto_map": {"AutoConfig": "remote.Config"}, "model_type": "nobody_knows_this"}
    (folder / "config.json").write_text(json.dumps(changed))
    given = ModelSettings(ckpt=str(folder), trust_remote_code=True)
    with pytest.raises(ModelError):
        load_model(str(folder), load_tokenizer(str(folder), given), given, torch.device("cpu"))
    assert Path("remote_code_ran").exists()


SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
OTHERS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "a state that runs on": ("MambaConfig", "MambaForCausalLM", {"state_size": 8}, "of which 0 use packed attention"),
    "attention of its own": ("BloomConfig", "BloomForCausalLM", {}, "of which 0 use packed attention"),
    "positions that run on": (
        "BartConfig",
        "BartForCausalLM",
        {"d_model": 32, "decoder_layers": 2, "encoder_layers": 2, "decoder_ffn_dim": 64, "is_decoder": True},
        "the results of its attention differ",
    ),
    "capped scores": ("Gemma2Config", "Gemma2ForCausalLM", {"num_key_value_heads": 2, "head_dim": 8}, "score capping"),
    "an encoder": ("BertConfig", "BertModel", {"intermediate_size": 64}, "lack "),
    "a classifier": ("LlamaConfig", "LlamaForSequenceClassification", {"intermediate_size": 64}, "lack 1 tensors"),
    "encoder and decoder": ("T5Config", "T5ForConditionalGeneration", {"d_model": 32, "d_ff": 64, "d_kv": 8}, "T5"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_model_of_another_kind_is_refused(
    workplace: Path, tokenizer: transformers.PreTrainedTokenizerFast, kind: str
) -> None:
    config, module, own, error = OTHERS[kind]
    getattr(transformers, module)(getattr(transformers, config)(**SMALL, **own)).save_pretrained("model")
    tokenizer.save_pretrained("model")
    with pytest.raises(ModelError, match=error) as caught:
        use(Path("model"))
    assert caught.value.fix


def test_a_tokenizer_of_another_model_is_refused_before_the_run_folder_is_made(
    workplace: Path, refused_run: Refused, tiny_folder: Callable[..., Path]
) -> None:
    """Of the letters, `_` is token 61; a model of 40 tokens knows 0 to 39."""
    Path("data.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b_"}\n')
    said = refused_run(ckpt=tiny_folder(vocab_size=40))
    assert said.error == "the tokenizer makes token 61 of prompt 1, but the model knows only 40"


def test_a_prompt_without_room_for_an_answer_is_refused_before_the_run_folder_is_made(
    workplace: Path, refused_run: Refused
) -> None:
    """The context is 128 tokens, of a letter each."""
    Path("data.jsonl").write_text(f'{{"prompt": "a"}}\n{{"prompt": "{"b" * 128}"}}\n')
    said = refused_run()
    assert said.error == "prompt 1 has 128 tokens, which leaves no room in the model's context of 128"
    assert said.fix == "lower max_prompt_tokens"


def test_a_prompt_all_of_whose_answers_would_be_overlong_is_refused_before_the_run_folder_is_made(
    workplace: Path, refused_run: Refused
) -> None:
    """124 of 128 tokens are the prompt's; the buffer of 5 fits max_new_tokens 10, but not the 4 that are left."""
    Path("data.jsonl").write_text(f'{{"prompt": "a"}}\n{{"prompt": "{"b" * 124}"}}\n')
    said = refused_run(max_new_tokens=10, dapo_overlong_buffer_len=5)
    assert said.error == (
        "prompt 1 leaves 4 tokens for its answer in the model's context of 128, but dapo_overlong_buffer_len is 5"
    )
    assert said.fix == "lower dapo_overlong_buffer_len or max_prompt_tokens"


def test_a_sequence_longer_than_a_window_is_refused_before_the_run_folder_is_made(
    workplace: Path, refused_run: Refused, family_folder: Callable[..., Path]
) -> None:
    Path("data.jsonl").write_text(f'{{"prompt": "a"}}\n{{"prompt": "{"b" * 12}"}}\n')
    said = refused_run(ckpt=family_folder("Mistral", sliding_window=16), max_new_tokens=5)
    assert said.error == (
        "prompt 1 with an answer of 5 tokens has 17, but MistralForCausalLM is computed rightly up to 16: "
        "its sliding window"
    )


def test_a_cache_without_room_for_a_sequence_is_refused_before_the_run_folder_is_made(refused_run: Refused) -> None:
    """1 + 3 tokens of 2 x 2 layers x 2 heads x 8 x 4 bytes are 1024 bytes, 9.5e-7 GiB."""
    assert refused_run(kv_cache_gb=9e-7).error.startswith("kv_cache_gb is 9e-07 but one sequence of 4 tokens")
