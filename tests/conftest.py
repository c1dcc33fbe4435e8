"""Real, tiny models: a random Llama of two layers, and one whose next-token logits are a table that a test writes."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from dapo.algorithms.settings import Algorithm, AlgorithmSettings
from dapo.config import load_config
from dapo.coordination.run import train
from dapo.models.language_model import LanguageModel
from dapo.models.loading import load_model, load_tokenizer
from dapo.models.settings import ModelSettings
from dapo.records import Completion, Draw, Prompt
from dapo.tracking.plain_display import PlainDisplay
from dapo.training.batch import Answer

torch.set_num_threads(1)  # tensors of a few hundred numbers: more threads only wait for each other

EOS, UNK = 0, 1
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 \n:,.?!+-*=<>/[]()'CNWR_%#"
VOCABULARY = {"</s>": EOS, "<unk>": UNK} | {letter: number for number, letter in enumerate(LETTERS, start=2)}
SIZE = len(VOCABULARY)
CHAT_TEMPLATE = (
    "{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew-golden", action="store_true", help="write the golden run's numbers anew")


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """One id per letter; `</s>` is 0, anything unknown is 1, `a` is 2, `b` is 3, ..."""
    fast = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    fast.decoder = decoders.Fuse()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="</s>", unk_token="<unk>", pad_token="</s>")
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


@pytest.fixture(scope="session")
def tiny_config() -> Callable[..., LlamaConfig]:
    """The settings of the tiny Llama, any of them changed."""

    def make(**changes: Any) -> LlamaConfig:
        return LlamaConfig(
            **{
                "vocab_size": SIZE,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "max_position_embeddings": 128,
                "initializer_range": 0.3,  # logits of a few units, so that a wrong one shows
                "eos_token_id": EOS,
                "bos_token_id": None,
                "pad_token_id": EOS,
                **changes,
            }
        )

    return make


@pytest.fixture(scope="session")
def tiny_folder(
    tmp_path_factory: pytest.TempPathFactory,
    tokenizer: PreTrainedTokenizerFast,
    tiny_config: Callable[..., LlamaConfig],
) -> Callable[..., Path]:
    """Makes a checkpoint folder of the tiny Llama, with settings changed; always the same weights for the same ones."""
    made: dict[str, Path] = {}

    def make(**changes: Any) -> Path:
        key = repr(sorted(changes.items()))
        if key not in made:
            made[key] = tmp_path_factory.mktemp("tiny") / "model"
            with torch.random.fork_rng():
                torch.manual_seed(0)
                module = LlamaForCausalLM(tiny_config(**changes))
            module.save_pretrained(made[key])
            tokenizer.save_pretrained(made[key])
        return made[key]

    return make


@pytest.fixture(scope="session")
def load_tiny(tiny_folder: Callable[..., Path]) -> Callable[..., LanguageModel]:
    """Loads the tiny Llama as a run does, with fresh parameters each time."""

    def load(*, dtype: str = "float32", activation_checkpointing: bool = False, **changes: Any) -> LanguageModel:
        return load_folder(tiny_folder(**changes), dtype, activation_checkpointing)

    return load


def load_folder(folder: Path, dtype: str = "float32", activation_checkpointing: bool = False) -> LanguageModel:
    settings = ModelSettings(ckpt=str(folder), dtype=dtype, activation_checkpointing=activation_checkpointing)  # type: ignore[arg-type]
    return load_model(str(folder), load_tokenizer(str(folder), settings), settings, torch.device("cpu"))


@pytest.fixture(scope="session")
def load_checkpoint() -> Callable[..., LanguageModel]:
    """Loads any folder as a run does."""
    return load_folder


@pytest.fixture(scope="session")
def family_folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> Callable[..., Path]:
    """Makes a folder of a tiny model of a family of `transformers`, such as "OPT"; settings by their own names."""
    common = {
        "vocab_size": SIZE, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "initializer_range": 0.3,
        "eos_token_id": EOS, "bos_token_id": None, "pad_token_id": EOS,
    }  # fmt: skip
    by_family = {
        "OPT": {"ffn_dim": 64, "word_embed_proj_dim": 32, "init_std": 0.3, "num_key_value_heads": None},
        "Mixtral": {"num_local_experts": 4},
        "Phimoe": {"num_local_experts": 4},
        "Gemma2": {"head_dim": 8, "attn_logit_softcapping": None, "sliding_window": 128},
    }

    def make(family: str, **changes: Any) -> Path:
        import transformers

        folder = tmp_path_factory.mktemp(family)
        config = getattr(transformers, f"{family}Config")(**{**common, **by_family.get(family, {}), **changes})
        with torch.random.fork_rng():
            torch.manual_seed(0)
            module = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")(config)
        module.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def plain_logits() -> Callable[..., Tensor]:
    """(T,) ids -> (T, V) logits of the module's own forward pass, by the attention that `transformers` has."""

    def run(model: LanguageModel, tokens: Sequence[int]) -> Tensor:
        ours = model.module.config._attn_implementation
        model.module.set_attn_implementation("eager")
        try:
            return model.module(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits[0].float()
        finally:
            model.module.set_attn_implementation(ours)

    return run


@pytest.fixture(scope="session")
def fresh_logprobs(plain_logits: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Log-probability of each answer token by a plain forward pass over prompt and answer."""

    def score(model: LanguageModel, prompt: Sequence[int], answer: Sequence[int], temperature: float = 1.0) -> Tensor:
        logits = plain_logits(model, (*prompt, *answer))[len(prompt) - 1 : -1]
        return (logits / temperature).log_softmax(-1).gather(-1, torch.tensor(list(answer))[:, None])[:, 0]

    return score


@pytest.fixture(scope="session")
def table_model(
    tmp_path_factory: pytest.TempPathFactory,
    tokenizer: PreTrainedTokenizerFast,
    tiny_config: Callable[..., LlamaConfig],
) -> Callable[..., LanguageModel]:
    """A real Llama whose next-token logits depend on the last token alone: row `last` of the given (V, V) table.

    Its layers add nothing, each token's embedding is a direction of its own, and the norm before the head makes
    each the length sqrt(V), which the head divides out.
    """

    def make(table: Tensor, **changes: Any) -> LanguageModel:
        folder = tmp_path_factory.mktemp("table")
        wide = {"hidden_size": SIZE, "head_dim": 16, "num_hidden_layers": 1, "rms_norm_eps": 1e-12}
        module = LlamaForCausalLM(tiny_config(**{**wide, **changes}))
        with torch.no_grad():
            for layer in module.model.layers:
                layer.self_attn.o_proj.weight.zero_()
                layer.mlp.down_proj.weight.zero_()
            module.model.embed_tokens.weight.copy_(torch.eye(SIZE))
            module.lm_head.weight.copy_(table.T / SIZE**0.5)
        module.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return load_folder(folder)

    return make


@pytest.fixture(scope="session")
def always() -> Callable[..., Tensor]:
    """A table in which the given text, then `</s>` over and over, is all but certain. Its letters must differ."""

    def table(text: str, *, start: str) -> Tensor:
        chain = [VOCABULARY[letter] for letter in start + text] + [EOS, EOS]
        logits = torch.zeros(SIZE, SIZE)
        for before, after in pairwise(chain):
            logits[before, after] = 60.0
        return logits

    return table


@pytest.fixture(scope="session")
def ids() -> Callable[[str], tuple[int, ...]]:
    """Text -> ids, one per letter."""
    return lambda text: tuple(VOCABULARY[letter] for letter in text)


@pytest.fixture(scope="session")
def draw(ids: Callable[[str], tuple[int, ...]]) -> Callable[..., Draw]:
    """A draw of a prompt with this text."""
    return lambda number, text, index=None: Draw(number, Prompt(number if index is None else index, text, ids(text)))


@pytest.fixture(scope="session")
def answer() -> Callable[..., Answer]:
    """An answer as the trainer gets it."""

    def make(
        group: int,
        prompt: Sequence[int],
        tokens: Sequence[int],
        advantage: float = 1.0,
        logprobs: Sequence[float] | None = None,
        index: int | None = None,
    ) -> Answer:
        old = tuple(-2.0 - 0.1 * place for place in range(len(tokens))) if logprobs is None else tuple(logprobs)
        row = Prompt(group if index is None else index, "", tuple(prompt))
        return Answer(group, row, Completion(tuple(tokens), old, "", "stop"), advantage)

    return make


@pytest.fixture(scope="session")
def algorithm() -> Callable[..., Algorithm]:
    """DAPO, or what is named, with every choice made."""
    return lambda algo="dapo", **choices: Algorithm.of(AlgorithmSettings(algo=algo, **choices))


@pytest.fixture
def run_training(tmp_path: Path, tiny_folder: Callable[..., Path]) -> Callable[..., Path]:
    """Trains the tiny Llama by settings, as `dapo train` does; returns the run folder."""

    def run(
        *,
        prompts: Sequence[str] = (),
        reward: str = "",
        name: str = "run",
        output: TextIO | None = None,
        **settings: Any,
    ) -> Path:
        data, source = tmp_path / f"{name}.jsonl", tmp_path / f"{name}_reward.py"
        data.write_text("".join(f'{{"prompt": "{prompt}"}}\n' for prompt in prompts))
        source.write_text(reward)
        flags = {
            "ckpt": str(tiny_folder()),
            "dataset_path": str(data),
            "reward_fn_path": str(source),
            "save_path": str(tmp_path / name),
            "train_devices": "cpu",
            "reward_workers": 1,
            "n_samples": 2,
            "max_new_tokens": 6,
            **settings,
        }
        with PlainDisplay(output or io.StringIO()) as display:
            return train(load_config(None, flags), display)

    return run
