"""Everything about a run but its tensors, between two updates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from dapo.checkpoints.fingerprint import Fingerprint
from dapo.records import Completion, Group, Prompt, Score


@dataclass(frozen=True)
class RunState:
    """Where a run stands. With the weights and the optimizer it decides everything that comes after."""

    updates: int
    """Updates made; the learning rate follows from it."""
    position: int
    """Prompts drawn; the epoch and the order of the rest follow from it."""
    buffered: tuple[Group, ...]
    """Surplus groups that wait to be trained, oldest first, each with the weights version that wrote it."""
    skipped_updates: int
    """Optimizer steps skipped so far for a non-finite loss or gradient."""
    skipped_in_a_row: int
    """Those of them since the last step that was made."""
    reward_failures: int
    """Answers scored 0 so far since their reward could not be computed."""
    random: Mapping[str, Any]
    """From random_states()."""
    fingerprint: Fingerprint
    heldout_accuracy: float | None = None
    """Measured with these weights; None when it was not."""
    threads: int | None = None
    """Of a CPU product, which decide how its sums are rounded; None where an older version left it out."""

    def to_json(self) -> str:
        """Numbers come back exactly: a float's shortest text names it alone, and float32 is a part of float64."""
        plain = {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "buffered": [_group_to_json(group) for group in self.buffered],
            "fingerprint": asdict(self.fingerprint),
        }
        return json.dumps(plain, default=_plain) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> RunState:
        """Raises ValueError, KeyError, TypeError or AttributeError for text that `to_json` did not write."""
        plain = json.loads(text)
        for name in ("updates", "position", "skipped_updates", "skipped_in_a_row", "reward_failures"):
            if type(plain[name]) is not int or plain[name] < 0:
                raise ValueError(f"{name} is no count")
        for mapping in (plain["random"], plain["fingerprint"]["settings"]):
            if not isinstance(mapping, dict):
                raise TypeError(f"{mapping!r} is no mapping")
        return cls(
            **{
                **plain,
                "buffered": tuple(_group_from_json(group) for group in plain["buffered"]),
                "fingerprint": Fingerprint(**plain["fingerprint"]),
            }
        )


def _group_to_json(group: Group) -> dict[str, Any]:
    """The row and its messages are left out: the group is scored already, and nothing else reads them."""
    prompt = group.prompt
    return {
        "id": group.id,
        "version": group.version,
        "prompt": {"index": prompt.index, "text": prompt.text, "tokens": prompt.tokens, "answer": prompt.answer},
        "completions": [asdict(completion) for completion in group.completions],
        "scores": [{"value": score.value, "metrics": dict(score.metrics)} for score in group.scores],
    }


def _group_from_json(plain: Mapping[str, Any]) -> Group:
    prompt = plain["prompt"]
    return Group(
        id=plain["id"],
        prompt=Prompt(**{**prompt, "tokens": tuple(prompt["tokens"])}),
        completions=tuple(
            Completion(**{**kept, "tokens": tuple(kept["tokens"]), "logprobs": tuple(kept["logprobs"])})
            for kept in plain["completions"]
        ),
        scores=tuple(Score(**score) for score in plain["scores"]),
        version=plain["version"],
    )


def _plain(value: Any) -> Any:
    """Answers may be of any kind; those that JSON lacks become what the rollout log would write of them."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
