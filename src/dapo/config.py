"""A run's settings: each room's own, put together from a recipe and flags, and checked against each other."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from dapo.algorithms.settings import Algorithm, AlgorithmSettings
from dapo.coordination.settings import RunSettings
from dapo.data.settings import DataSettings
from dapo.errors import ConfigError
from dapo.models.settings import ModelSettings
from dapo.rewards.settings import RewardSettings
from dapo.rollout.settings import RolloutSettings
from dapo.sampling.settings import CollectionSettings
from dapo.tracking.settings import AlarmSettings
from dapo.training.settings import TrainingSettings
from dapo.wording import nearest

T = TypeVar("T")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run. Its fields are the tables of a recipe; their fields are its keys."""

    algorithm: AlgorithmSettings
    model: ModelSettings
    data: DataSettings
    reward: RewardSettings
    rollout: RolloutSettings
    collection: CollectionSettings
    training: TrainingSettings
    run: RunSettings
    alarms: AlarmSettings

    def to_toml(self) -> str:
        """The resolved settings as a recipe that loads again; unset ones and ones that cannot act are left out."""
        import tomli_w

        algorithm = Algorithm.of(self.algorithm)
        idle = {name for name, acts, _ in _ACTS_ONLY if not acts(self, algorithm)}
        tables = {
            table: {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in keys.items()
                if value is not None and key not in idle
            }
            for table, keys in asdict(self).items()
        }
        return tomli_w.dumps(tables)


TABLES: dict[str, type] = get_type_hints(RunConfig)
OWNER: dict[str, str] = {field.name: table for table, kind in TABLES.items() for field in fields(kind)}
"""Setting -> the table it belongs to. Names are unique over all tables, so flags need no prefix."""


def load_config(recipe: Path | None, flags: Mapping[str, Any], *, saved: Path | None = None) -> RunConfig:
    """Recipe first, flags over it. Raises ConfigError for anything unknown, malformed or without effect.

    flags: setting -> value, strings as typed or already of the right type. saved: the resolved settings of a run
    that goes on, below both.
    """
    layers = [_read_recipe(path) for path in (saved, recipe) if path is not None]
    given = {name: value for layer in (*layers, flags) for name, value in layer.items()}
    for name in given:
        if name not in OWNER:
            raise unknown_setting(name)
    config = RunConfig(**{table: make_settings(kind, given) for table, kind in TABLES.items()})
    _check_together(config, frozenset(given))
    return config


def make_settings(kind: type[T], given: Mapping[str, Any]) -> T:
    """One part's settings from those of `given` that are its own; strings as typed or values of the right type.

    Raises ConfigError for a value that is malformed or refused.
    """
    names = get_type_hints(kind)
    return kind(**{name: _convert(kind, name, value) for name, value in given.items() if name in names})


def unknown_setting(name: str) -> ConfigError:
    guess = nearest(name, OWNER)
    return ConfigError(
        f"unknown setting {name}",
        fix=f"did you mean {guess}?" if guess else "`dapo train --help` lists the settings",
    )


def _read_recipe(path: Path) -> dict[str, Any]:
    """The recipe's keys, which stand under their table's heading or under none."""
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe or a device could keep us waiting for ever
            raise ConfigError(f"recipe {path} is not a regular file", fix="save the settings to a file first")
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except ConfigError:
        raise
    except FileNotFoundError:
        raise ConfigError(
            f"recipe {path} does not exist", fix="name a TOML file, such as recipes/quickstart.toml"
        ) from None
    except (OSError, ValueError, RecursionError) as problem:  # bad TOML or UTF-8, a NUL in the path, deep nesting
        raise ConfigError(f"recipe {path} cannot be read: {problem}", fix="write it as TOML") from problem
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if not isinstance(value, dict):
            flat[key] = value
            continue
        if key not in TABLES:
            raise ConfigError(f"unknown table [{key}] in {path}", fix=f"use one of {', '.join(TABLES)}")
        for name, inner in value.items():
            if OWNER.get(name, key) != key:
                raise ConfigError(f"{name} stands under [{key}] in {path}", fix=f"put it under [{OWNER[name]}]")
            if name in flat:
                raise ConfigError(f"{name} stands twice in {path}", fix=f"keep the one under [{key}]")
            flat[name] = inner
    return flat


def _convert(kind: type, name: str, value: Any) -> Any:
    from pydantic import TypeAdapter, ValidationError

    expected = get_type_hints(kind)[name]
    try:
        converted = TypeAdapter(expected).validate_python(value)
    except ValidationError as problem:
        reason = problem.errors()[0]["msg"]
        raise ConfigError(
            f"{name} is {_shown(value)}: {reason[0].lower()}{reason[1:]}", fix="see what --help says of it"
        ) from None
    if isinstance(value, bool) and not isinstance(converted, bool):
        raise ConfigError(f"{name} is {value}, which is not a number", fix="see what --help says of it")
    if isinstance(converted, int) and not -(2**63) <= converted < 2**63:
        raise ConfigError(f"{name} is {_shown(value)}: it does not fit into 64 bits", fix="use a smaller number")
    return converted


def _shown(value: Any) -> str:
    """The value as it was written; TOML's hexadecimal numbers can have more digits than Python is willing to show."""
    try:
        return repr(value)
    except ValueError:
        return "a number of thousands of digits"


def _check_together(config: RunConfig, given: frozenset[str]) -> None:
    """What no part can see alone."""
    algorithm = Algorithm.of(config.algorithm)
    buffer, limit = config.algorithm.dapo_overlong_buffer_len, config.rollout.max_new_tokens
    if buffer and buffer >= limit:
        raise ConfigError(
            f"dapo_overlong_buffer_len is {buffer} but max_new_tokens is {limit}",
            fix="make the buffer smaller than the response limit, or 0 to switch the penalty off",
        )
    if config.training.lr_schedule == "cosine" and config.run.max_steps is None:
        raise ConfigError(
            "lr_schedule is cosine but max_steps is not set: there is no end to fall towards", fix="set max_steps"
        )
    if config.run.agent_fn is not None:
        why = (
            "DAPO needs groups of a fixed size, which agents do not give"
            if algorithm.name == "dapo"
            else "not built yet"
        )
        raise ConfigError(
            f"agent_fn is {config.run.agent_fn!r}: agentic rollouts are refused, {why}", fix="leave agent_fn out"
        )
    for name, acts, reason in _ACTS_ONLY:
        if name in given and not acts(config, algorithm):
            raise ConfigError(f"{name} is given but {reason}", fix=f"leave {name} out")


_dynamic: Callable[[RunConfig, Algorithm], bool] = lambda config, algorithm: algorithm.dynamic_sampling  # noqa: E731
_ACTS_ONLY: tuple[tuple[str, Callable[[RunConfig, Algorithm], bool], str], ...] = (
    ("dapo_gen_batch_size", _dynamic, "dynamic sampling is off"),
    ("dapo_max_num_gen_batches", _dynamic, "dynamic sampling is off"),
    ("on_sampling_limit", _dynamic, "dynamic sampling is off"),
    ("max_staleness", _dynamic, "dynamic sampling is off, so no group is ever left over"),
    (
        "dapo_overlong_penalty_factor",
        lambda config, algorithm: config.algorithm.dapo_overlong_buffer_len > 0,
        "dapo_overlong_buffer_len is 0, so there is no penalty",
    ),
    (
        "adv_eps",
        lambda config, algorithm: algorithm.scale_advantages != "none",
        "advantages are not divided by anything",
    ),
    (
        "adv_correction",
        lambda config, algorithm: algorithm.scale_advantages != "none",
        "advantages are not divided by anything",
    ),
    ("eval_n", lambda config, algorithm: config.run.eval_dataset_path is not None, "eval_dataset_path is not set"),
)
"""Settings that are refused where they would do nothing: name, when it acts, why it does not otherwise."""
