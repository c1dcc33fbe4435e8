"""What is drawn of runs: one curve for each, or for all those that differ only in their seed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dapo.errors import DataError
from dapo.tracking.metrics_log import read_metrics

_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t for a two-sided 95% interval, by degrees of freedom from 1. Beyond 30 the last one is a little wide."""

Lines = Sequence[Mapping[str, Any]]
"""The lines of one `metrics.jsonl`."""


@dataclass(frozen=True, slots=True)
class Points:
    """A metric over the updates: one entry per step in each."""

    steps: list[int]
    middle: list[float]
    """Its value, or the mean over the seeds."""
    low: list[float]
    """Lower edge of the band; the value itself for a single run."""
    high: list[float]


@dataclass(frozen=True, slots=True)
class RunSet:
    """Runs drawn as one curve."""

    name: str
    seeds: tuple[Lines, ...]
    """The metrics of each run."""

    @property
    def last_step(self) -> int:
        """The last update that all of them have reached: a mean over ever fewer runs would mislead."""
        return min(int(lines[-1]["step"]) for lines in self.seeds)

    def points(self, metric: str, *, smooth: bool) -> Points:
        """The metric where it has a value, up to `last_step`.

        smooth: each run's own values are smoothed first, so that the band is that of what is drawn. A seed counts at
        the steps where it has a value.
        """
        values: dict[int, list[float]] = {}
        for lines in self.seeds:
            known = [(line["step"], line[metric]) for line in lines if line.get(metric) is not None]
            own = [value for _, value in known]
            for (step, _), value in zip(known, smoothed(own) if smooth else own, strict=True):
                values.setdefault(step, []).append(value)
        steps = sorted(step for step in values if step <= self.last_step)
        bands = [band(values[step]) for step in steps]
        return Points(
            steps, [_mean(values[step]) for step in steps], [low for low, _ in bands], [high for _, high in bands]
        )


def band(values: Sequence[float]) -> tuple[float, float]:
    """Where the mean lies, seen over seeds: its 95% interval by Student's t from three seeds on, range of two.

    One value has no width.
    """
    count = len(values)
    if count < 3:
        return min(values), max(values)
    mean = _mean(values)
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    half = _T95[min(count - 1, len(_T95)) - 1] * (variance / count) ** 0.5
    return mean - half, mean + half


def smoothed(values: Sequence[float]) -> list[float]:
    """Centred mean over about a twentieth of the run: of 40 updates each three neighbours, of 400 each 21."""
    half = len(values) // 40
    windows = (values[max(0, at - half) : at + half + 1] for at in range(len(values)))
    return [_mean(window) for window in windows]


def read_run_sets(run_dirs: Sequence[Path]) -> list[RunSet]:
    """The runs of these folders, those together that differ only in seed and folder, in the order of the first of each.

    A seed that comes again begins another curve: it is another experiment of the same settings. Raises DataError
    for a folder without updates or with files that cannot be read.
    """
    sets: list[_Members] = []
    for path in (run_dir.resolve() for run_dir in run_dirs):
        lines = read_metrics(path / "metrics.jsonl")
        if not lines:
            raise DataError(f"{path} has no finished update yet", fix="plot it again after its first update")
        settings, seed = _settings(path / "config.toml")
        same = (members for members in sets if members.settings == settings and seed not in members.seeds)
        members = next(same, None)
        if members is None:
            members = _Members(settings, [], [], [])
            sets.append(members)
        members.seeds.append(seed)
        members.paths.append(path)
        members.lines.append(lines)
    names = _distinct_names([members.paths for members in sets])
    return [RunSet(name, tuple(members.lines)) for name, members in zip(names, sets, strict=True)]


@dataclass(frozen=True, slots=True)
class _Members:
    """A run set that is being put together."""

    settings: dict[str, Any] | None
    seeds: list[Any]
    paths: list[Path]
    lines: list[Lines]


def _settings(config: Path) -> tuple[dict[str, Any] | None, Any]:
    """A run's settings without seed and folder, and the seed; None for a run that has none and so stands alone."""
    try:
        content = tomllib.loads(config.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read {config}: {error}", fix="mend the file, or remove it to draw the run") from error
    run = content.get("run", {})
    if not isinstance(run, dict):
        return content, None
    rest = {key: value for key, value in run.items() if key not in ("seed", "save_path")}
    return {**content, "run": rest}, run.get("seed")


def common_name(paths: Sequence[Path]) -> str:
    """What the names of the folders share, without the seed: `dapo` for `dapo-seed1` and `dapo-seed2`.

    The folder above names runs that share nothing, as `dapo/1` and `dapo/2`.
    """
    if len(paths) == 1:
        return paths[0].name
    above = list(paths)
    while any(path.name for path in above):
        name = _shared_words([path.name for path in above])
        if name:
            return name
        above = [path.parent for path in above]
    return paths[0].name


def _distinct_names(sets: Sequence[Sequence[Path]]) -> list[str]:
    """A name for each; one that comes twice gets the folder above it, or else its first and last run."""
    short = [common_name(paths) for paths in sets]
    longer = [
        name if short.count(name) == 1 else _with_parent(name, paths) for name, paths in zip(short, sets, strict=True)
    ]
    return [
        name if longer.count(name) == 1 or len(paths) == 1 else f"{paths[0].name} ... {paths[-1].name}"
        for name, paths in zip(longer, sets, strict=True)
    ]


def _with_parent(name: str, paths: Sequence[Path]) -> str:
    above = [path.parent for path in paths]
    while len(paths) > 1 and common_name(above) == name and any(path.name for path in above):
        above = [path.parent for path in above]  # the name is this folder's own
    return f"{common_name(above)}/{name}"


def _shared_words(names: Sequence[str]) -> str:
    """The first and the last words that all names have, words being letters, digits, or what separates them."""
    if len(set(names)) == 1:
        return names[0]
    split = [re.findall(r"\d+|[^\W\d_]+|[\W_]+", name) for name in names]
    first = _shared_start(split)
    last = _shared_start([words[len(first) :][::-1] for words in split])[::-1]
    while first and (first[-1].lower() in ("seed", "s") or not first[-1].isalnum()):
        first.pop()
    return "".join(first + last).strip("-_. =,")


def _shared_start(lists: Sequence[Sequence[str]]) -> list[str]:
    shared: list[str] = []
    for words in zip(*lists, strict=False):
        if len(set(words)) > 1:
            break
        shared.append(words[0])
    return shared


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
