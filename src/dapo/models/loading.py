"""Load a model and its tokenizer from a folder, a hub, or the bundle; save it for any other tool."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from dapo.errors import DapoError, ModelError
from dapo.models.activation_checkpointing import checkpoint_layers
from dapo.models.bundled import BUNDLED, bundled_folder
from dapo.models.checks import check_model
from dapo.models.hush import hush_transformers
from dapo.models.language_model import LanguageModel
from dapo.models.packed_attention import ATTENTION_NAME, PLAIN_DECODER, packed_attention
from dapo.models.settings import ModelSettings
from dapo.places import hub_has, is_path, nearest_place
from dapo.wording import first_line, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

T = TypeVar("T")

GENERATION_CONFIG = "generation_config.json"


def locate(settings: ModelSettings, *, notify: Callable[[str], None] = lambda _: None) -> str:
    """The folder or hub id to load from. Raises ModelError where a local path names no model folder.

    notify: told in a line when something slow is done once (converting the bundled model).
    """
    ckpt = str(settings.ckpt)
    if ckpt in BUNDLED:
        return str(bundled_folder(ckpt, notify))
    folder = Path(os.path.expanduser(ckpt))
    if os.path.isdir(folder):  # unlike Path's own, False for a name that no folder can have
        if not (folder / "config.json").is_file():
            raise ModelError(f"ckpt {ckpt} is a folder without config.json", fix="name a Hugging Face model folder")
        return str(folder)
    guess = nearest_place(ckpt) or nearest(ckpt, BUNDLED)
    meant = f"did you mean {guess}? " if guess else ""
    if is_path(ckpt):
        raise ModelError(
            f"ckpt {ckpt} does not exist: no such folder",
            fix=f"{meant}name an existing folder, a hub id such as owner/name, or {', '.join(BUNDLED)}",
        )
    if settings.model_hub == "modelscope":
        return _modelscope_folder(ckpt)
    reason = hub_has(ckpt, "model")
    if reason is not None:
        raise ModelError(
            f"ckpt {ckpt} does not exist: it is no folder here, and as a hub id {reason}",
            fix=f"{meant}name an existing folder, a hub id that can be reached, or {', '.join(BUNDLED)}",
        )
    return ckpt


def load_tokenizer(location: str, settings: ModelSettings) -> PreTrainedTokenizerBase:
    """The tokenizer alone: quick, and enough to read the data with."""
    from transformers import AutoTokenizer

    return _load("tokenizer", location, AutoTokenizer.from_pretrained, trust_remote_code=settings.trust_remote_code)


def load_model(
    location: str, tokenizer: PreTrainedTokenizerBase, settings: ModelSettings, device: torch.device
) -> LanguageModel:
    """The model on its device, checked against its own plain forward pass. Weights come from safetensors only."""
    from transformers import AttentionInterface, AutoModelForCausalLM

    AttentionInterface.register(ATTENTION_NAME, packed_attention)
    loader: Callable[..., tuple[Any, dict[str, Any]]] = AutoModelForCausalLM.from_pretrained  # type: ignore[assignment]
    module, report = _load(
        "model",
        location,
        loader,
        dtype=resolve_dtype(settings.dtype, device),
        attn_implementation=ATTENTION_NAME,
        trust_remote_code=settings.trust_remote_code,
        use_safetensors=True,
        output_loading_info=True,
    )
    missing = sorted(report["missing_keys"])
    if missing:  # the library has filled them with random numbers
        raise ModelError(
            f"the weights of {location} lack {len(missing)} tensors, such as {missing[0]}",
            fix="save the whole model again, or copy the weights again",
        )
    # For good: the noise of training mode (dropout, layer drop, router jitter) was not there when the answers were
    # drawn and would be taken for a change of policy.
    module = module.to(device).eval()
    for parameter in module.parameters():
        # Memory of its own. A loaded one may lie in the mapped file, where its address, which can decide how a
        # product is rounded, depends on the length of the file's header, and where the file must never change.
        parameter.data = parameter.data.clone()
    if settings.activation_checkpointing:
        checkpoint_layers(module)
    return _checked(LanguageModel(module, tokenizer, _generation_config(location)))


def _generation_config(location: str) -> bytes | None:
    """The file as it lies in the folder or on the hub."""
    from transformers.utils import cached_file

    path = cached_file(
        location,
        GENERATION_CONFIG,
        local_files_only=os.path.isdir(location),
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if path is None else Path(path).read_bytes()


def _checked(model: LanguageModel) -> LanguageModel:
    module = model.module
    if module.config.get_text_config().tie_word_embeddings and model.head is not module.get_input_embeddings().weight:
        raise ModelError(
            "tie_word_embeddings is on in the model's config.json, but its weights hold a head of their own",
            fix="set tie_word_embeddings to false there, or save the weights without the head",
        )
    try:
        check_model(model)
    except ModelError:
        raise
    except Exception as problem:  # a model of another kind can fail anywhere in it
        raise ModelError(
            f"{type(module).__name__} has a forward pass of another kind, which cannot be run packed "
            f"({type(problem).__name__}: {first_line(problem)})",
            fix=PLAIN_DECODER,
        ) from problem
    return model


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """`auto` is float32 on a CPU, where it is exact and runs everywhere, and bfloat16 on a GPU."""
    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]


def save_model(model: LanguageModel, folder: Path) -> None:
    """Write a Hugging Face folder: weights (tied ones once), config, tokenizer, template, and the generation config as
    it came."""
    _save(model, folder, None)


def check_can_be_saved(model: LanguageModel) -> None:
    """Write everything but the weights to a folder that is removed again. Raises ModelError for what cannot be written,
    before anything is computed that would then be lost."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            _save(model, Path(folder), {})
    except OSError as problem:
        raise DapoError(
            f"cannot write temporary files to {tempfile.gettempdir()}: {problem.strerror or problem}",
            fix="free the disk, or name another folder by the environment variable TMPDIR",
        ) from problem
    except Exception as problem:  # the library refuses in many ways
        raise ModelError(
            f"{type(model.module).__name__} could be trained but not saved: {first_line(problem)}",
            fix="mend the model's config.json or its tokenizer's files",
        ) from problem


def _save(model: LanguageModel, folder: Path, weights: dict[str, torch.Tensor] | None) -> None:
    from transformers import GenerationConfig

    module, file = model.module, folder / GENERATION_CONFIG
    # The library refuses to write settings that it read, such as a temperature without do_sample.
    as_read, module.generation_config = module.generation_config, GenerationConfig()
    try:
        module.save_pretrained(folder, state_dict=weights)
    finally:
        module.generation_config = as_read
    if model.generation_config is None:
        file.unlink(missing_ok=True)
    else:
        file.write_bytes(model.generation_config)
    model.tokenizer.save_pretrained(folder)


def _load(what: str, location: str, loader: Callable[..., T], **options: Any) -> T:
    """A loader may fail in any way on a folder that a person hands over; all become one clear error."""
    hush_transformers()
    try:
        return loader(location, local_files_only=os.path.isdir(location), **options)
    except Exception as problem:
        if ATTENTION_NAME in str(problem):  # not among the kinds of attention that the model's class was written for
            raise ModelError(
                f"the model of {location} has an attention of its own, which packed attention cannot stand in for",
                fix=PLAIN_DECODER,
            ) from problem
        raise ModelError(
            f"cannot load the {what} of {location}: {first_line(problem)}", fix=_mend(location, problem)
        ) from problem


def _mend(location: str, problem: Exception) -> str:
    """What a person can do when the library could not load what they named."""
    if "custom code" in str(problem):
        return "if you trust the code that comes with the model, run it with --trust-remote-code"
    if os.path.isdir(location):
        return "a file in it is damaged, missing or of another model: copy or save the whole folder again"
    return "name a folder in Hugging Face format with safetensors weights, or a hub id that can be reached"


def _modelscope_folder(name: str) -> str:
    try:
        from modelscope import snapshot_download
    except ImportError as missing:
        raise ModelError(
            "model_hub is modelscope but the package modelscope is not installed", fix="pip install modelscope"
        ) from missing
    return _load("snapshot", name, lambda where, **_: str(snapshot_download(where)))
