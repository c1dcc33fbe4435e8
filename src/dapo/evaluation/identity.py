"""What an evaluation's numbers depend on, so that answers of two different ones are never mixed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dapo.checkpoints.fingerprint import changed_settings, prompts_digest, reward_digest
from dapo.evaluation.settings import EvalConfig
from dapo.records import Prompt
from dapo.user_file import split_path

_DECISIVE = (
    *("n", "max_new_tokens", "temperature", "top_p", "top_k", "greedy", "stop_strings", "seed"),
    *("dtype", "reward", "reward_timeout_s", "reward_memory_mb"),
)
"""Settings that decide what is drawn or how it is scored. Model, data and reward file are compared by content."""


@dataclass(frozen=True)
class Identity:
    """Two evaluations with equal identities draw and score the same."""

    settings: Mapping[str, Any]
    data: str
    """Digest of the prompts, answers and rows."""
    reward: str | None
    """Digest of the person's own reward file and the function in it; None for a built-in reward."""
    weights: str | None = None
    """Digest of the model's weights; None as long as it is not loaded."""

    def differences(self, saved: Identity) -> list[str]:
        """How this one differs from the one that was saved, a few words each; unknown weights differ from none."""
        found = changed_settings(saved.settings, self.settings)
        if self.data != saved.data:
            found.append("the data have changed")
        if self.reward != saved.reward:
            found.append("the reward function has changed")
        if self.weights is not None and self.weights != saved.weights:
            found.append("the model has other weights")
        return found

    @property
    def digest(self) -> str:
        """Eight characters that name settings, data and reward."""
        text = json.dumps([self.settings, self.data, self.reward], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:8]


def identity_of(config: EvalConfig, prompts: Sequence[Prompt]) -> Identity:
    """Of an evaluation whose model is not loaded yet."""
    every = {name: value for part in asdict(config).values() for name, value in part.items()}
    own = config.reward.reward_fn_path
    file, function = split_path(own) if own else ("", None)
    return Identity(
        settings=json.loads(json.dumps({name: every[name] for name in _DECISIVE})),
        data=prompts_digest(prompts),
        reward=reward_digest(Path(file), function) if own else None,
    )


def weights_digest(module: nn.Module) -> str:
    """Digest of names and values of all parameters, wherever they were loaded from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
