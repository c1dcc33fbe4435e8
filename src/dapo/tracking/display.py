"""What a person watches while a model learns: one protocol, a live screen and plain lines."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

from dapo.tracking.metrics import MetricValue, metric

if TYPE_CHECKING:
    from rich.console import RenderableType

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories without a shape: control, format, half surrogate, line and paragraph separator."""


@dataclass(frozen=True, slots=True)
class View:
    """What a display says of the updates of one kind of run."""

    columns: tuple[tuple[str, str], ...]
    """Label and metric of each number."""
    curves: tuple[tuple[str, str], ...]
    """Label and metric of each curve, most important first."""
    groups: bool
    """Whether updates are made of groups, of which some are kept."""
    line_seconds: float = 0.0
    """A log gets at most one line in so many seconds, those with a held-out result and the last one aside."""


COLUMNS = (
    ("reward", "candidate_reward_mean"),
    ("held-out", "heldout_accuracy"),
    ("entropy", "entropy"),
    ("clipped", "pg_clipfrac"),
    ("length", "response_length_mean"),
    ("tok/s", "rollout_tokens_per_s"),
    ("time", "seconds_total"),
)
"""What every display says of an update of `dapo train`: label and metric."""

REINFORCED = View(COLUMNS, (("reward", "candidate_reward_mean"), ("held-out", "heldout_accuracy")), groups=True)
SUPERVISED = View(
    (
        ("loss", "loss"),
        ("held-out", "heldout_loss"),
        ("perplexity", "perplexity"),
        ("lr", "lr"),
        ("tok/s", "train_tokens_per_s"),
        ("epoch", "epoch"),
    ),
    (("loss", "loss"), ("held-out", "heldout_loss")),
    groups=False,
    line_seconds=2.0,
)


@dataclass(frozen=True, slots=True)
class CollectionProgress:
    """How far one update's search for groups that disagree has come."""

    step: int
    """The update that the groups are for, from 1."""
    round: int
    """Generation round, from 1."""
    max_rounds: int
    groups_kept: int
    """Groups that disagree, so far."""
    groups_needed: int
    groups_generated: int
    """Groups whose answers are all there and judged."""
    all_correct: int
    all_wrong: int
    sequences_done: int
    """Answers of this round that are finished."""
    sequences_total: int
    tokens: int
    """Answer tokens generated for this update."""
    seconds: float
    """Time spent generating them."""

    @property
    def tokens_per_s(self) -> float | None:
        return self.tokens / self.seconds if self.seconds > 0 else None


@dataclass(frozen=True, slots=True)
class BeforeAfter:
    """One measurement of the model before and after training."""

    label: str
    """What was measured, in words."""
    metric: str
    """The declared metric that it is a value of; decides how it is written."""
    before: MetricValue
    after: MetricValue


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    rows: Sequence[BeforeAfter]
    places: Mapping[str, str] = field(default_factory=dict)
    """Where things are: `model` -> folder, `metrics` -> file."""
    ending: str = ""
    """What ended the run and how to go on: the last line."""


class Display(Protocol):
    """Told by the run loop what happens; shows it. Used as a context manager, so that the terminal is given back.

    `collecting`, `updating` and `evaluating` may be called for every token: they cost microseconds.
    """

    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

    def start(self, title: str, facts: Mapping[str, str], total_steps: int | None, view: View = REINFORCED) -> None:
        """The run begins. facts: `model` -> name and the like; total_steps: updates to make, None if unknown."""

    def collecting(self, progress: CollectionProgress) -> None:
        """Answers are being generated and judged."""

    def updating(self, done: int, total: int) -> None:
        """The model is being trained: `done` of `total` passes."""

    def evaluating(self, done: int, total: int) -> None:
        """Held-out prompts are being answered: `done` of `total` answers."""

    def step_done(self, step: int, metrics: Mapping[str, MetricValue]) -> None:
        """Update `step` is finished: 1 for the first; 0 reports what was measured before any."""

    def notice(self, text: str) -> None:
        """Something worth knowing."""

    def warning(self, text: str) -> None:
        """Something worth doing something about."""

    def finish(self, outcome: Outcome) -> None:
        """The run is over."""


def before_after_table(outcome: Outcome) -> RenderableType:
    """The last thing a run shows: each measurement before and after, and where things are."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("")
    for name in ("before", "after", "change"):
        table.add_column(name, justify="right")
    for row in outcome.rows:
        shown = metric(row.metric)
        table.add_row(
            Text(printable(row.label)),
            shown.text(row.before),
            Text(shown.text(row.after), style="bold"),
            _change(row),
        )
    places = Table.grid(padding=(0, 3, 0, 0))
    places.add_column(style="dim", no_wrap=True)
    places.add_column(overflow="fold")
    for label, place in outcome.places.items():
        places.add_row(Text(printable(label)), Text(printable(place)))
    parts = [part for part, used in ((table, outcome.rows), (places, outcome.places)) if used]
    return Group(*(line for part in parts for line in (Text(), part)))


def printable(text: str) -> str:
    """The text without control and format characters: an answer cannot move the cursor or turn the line around."""
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(char) in _UNSEEN and char != "\n" else char
        for char in text.expandtabs(4)
    )


def _change(row: BeforeAfter) -> str:
    if row.before is None or row.after is None:
        return "-"
    text = metric(row.metric).text(row.after - row.before)
    return text if text.startswith("-") else f"+{text}"
