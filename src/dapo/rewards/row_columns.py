"""What a row offers to a person's reward by name, and what of it is missing. Runs none of the person's code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dapo.errors import RewardError
from dapo.records import Prompt

ANSWER_NAMES = ("answer", "ground_truth")
"""What rewards call the reference answer; a row offers it under both, whatever its own column is called."""


@dataclass(frozen=True)
class RewardNeeds:
    """What a worker tells about the reward that it has loaded."""

    name: str
    """What messages call it."""
    whole_group: bool
    """Whether one call scores all answers of a prompt."""
    columns: tuple[str, ...]
    """What it takes of a row and has no default for."""

    def check(self, prompts: Iterable[Prompt]) -> None:
        """Raise RewardError, naming the first, when rows lack what the reward needs."""
        lacking = [prompt for prompt in prompts if self._missing(prompt)] if self.columns else []
        if not lacking:
            return
        first, *others = lacking
        rows = f"row {first.index} and {len(others)} more have" if others else f"row {first.index} has"
        missing = self._missing(first)
        answer = " (nor reward_model.ground_truth)" if set(missing) & set(ANSWER_NAMES) else ""
        raise RewardError(
            f"{self.name} needs {', '.join(missing)}, but {rows} none{answer}; "
            f"row {first.index} offers {offered(row_columns(first))}",
            fix="give every row such a column, or give the parameter a default value",
        )

    def _missing(self, prompt: Prompt) -> list[str]:
        columns = row_columns(prompt)
        return [name for name in self.columns if not _has(columns, name)]


def row_columns(prompt: Prompt) -> dict[str, Any]:
    """Every column but prompt and completion, and the answer under its names where a row has no value of that name."""
    columns = {name: value for name, value in prompt.row.items() if name not in ("prompt", "completion")}
    for name in ANSWER_NAMES:
        if columns.get(name) is None and prompt.answer is not None:
            columns[name] = prompt.answer
    return columns


def offered(names: Iterable[str]) -> str:
    """The names of columns in words."""
    return ", ".join(map(str, names)) or "nothing"


def _has(columns: dict[str, Any], name: str) -> bool:
    """A column of one's own may hold null and mean it; no answer equals a reference that is not there."""
    return name in columns and not (columns[name] is None and name in ANSWER_NAMES)
