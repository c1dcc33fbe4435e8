"""What a run's numbers depend on, so that a resume with anything else is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dapo.errors import RewardError
from dapo.records import Prompt

MAY_CHANGE = frozenset(
    {
        "save_path",
        "epochs",
        "max_steps",
        "max_rollout_tokens",
        "save_interval",
        "keep_checkpoints",
        "keep_best",
        "eval_interval",
        "max_skipped_updates",
        "reward_workers",
        "alarm_window",
        "alarm_interval",
        "alarm_entropy",
        "alarm_clip_share",
        "alarm_informative_share",
        "alarm_length_growth",
        "alarm_mismatch_growth",
    }
)
"""Settings that decide how long a run goes, what is kept of it and what it warns of, but no number in it."""

JUDGED_BY_CONTENT = frozenset({"dataset_path", "dataset_loader_fn", "reward_fn_path", "eval_dataset_path", "eval_n"})
"""Settings that name something whose content is compared, so that a file may move."""


@dataclass(frozen=True)
class Fingerprint:
    """Settings and contents. Two equal ones mean the same run."""

    settings: Mapping[str, Any]
    """From decisive_settings()."""
    data: str
    """Digest of the prompts, answers and rows to learn from."""
    reward: str | None
    """Digest of the person's own reward file and the function in it; None for a built-in reward."""
    held_out: str | None
    """Digest of the held-out prompts and the number of answers to each; None without."""

    def changes(self, now: Fingerprint) -> list[str]:
        """What would make the run another one, a few words each. Held-out data that only came new is no change."""
        found = [*changed_settings(self.settings, now.settings)]
        if self.data != now.data:
            found.append("the data are not the rows that the run was trained on")
        if self.reward != now.reward:
            found.append("the reward function is not the one that the run was trained with")
        if self.held_out is not None and self.held_out != now.held_out:
            found.append("the held-out data are not the ones that the run was measured on")
        return found


def changed_settings(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Settings that have another value now: `lr is 0.1 now but was 0.2`."""
    return [
        f"{name} is {_shown(now.get(name))} now but was {_shown(saved.get(name))}"
        for name in sorted(saved.keys() & now.keys())
        if now[name] != saved[name]
    ]


def decisive_settings(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Those of all tables' settings that decide a run's numbers, as they are after a way through JSON."""
    settings = {name: value for table in tables.values() for name, value in table.items()}
    free = MAY_CHANGE | JUDGED_BY_CONTENT
    if settings["lr_schedule"] == "cosine":
        # The rate of every update depends on where the cosine ends: at max_steps, or without it with the last epoch.
        free -= {"max_steps"} if settings["max_steps"] is not None else {"max_steps", "epochs"}
    return json.loads(json.dumps({name: value for name, value in settings.items() if name not in free}))


def prompts_digest(prompts: Iterable[Prompt], *also: Any) -> str:
    """Digest of everything in the prompts that a model or a reward can see."""
    digest = hashlib.sha256(repr(also).encode())
    for prompt in prompts:
        seen = (prompt.index, prompt.tokens, prompt.answer, prompt.row)
        digest.update(repr(seen).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def reward_digest(file: Path, function: str | None) -> str:
    """Digest of a reward file and of which function in it is meant."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise RewardError(f"cannot read {file}: {error.strerror or error}", fix="check reward_fn_path") from error
    return hashlib.sha256(content + repr(function).encode()).hexdigest()


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)
