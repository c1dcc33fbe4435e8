"""A run's settings: each room's own, put together from a recipe and flags, and checked against each other."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_type_hints

from dapo.algorithms.settings import Algorithm, AlgorithmSettings
from dapo.coordination.settings import RunSettings
from dapo.data.settings import DataSettings
from dapo.errors import ConfigError
from dapo.kinds import kind_of, wrong_kind
from dapo.models.settings import ModelSettings
from dapo.peers import explain, find
from dapo.places import nearest_place
from dapo.rewards.settings import RewardSettings, own_reward
from dapo.rollout.settings import RolloutSettings
from dapo.sampling.settings import CollectionSettings
from dapo.tracking.settings import AlarmSettings
from dapo.training.settings import TrainingSettings
from dapo.wording import nearest_setting

T = TypeVar("T")
_LONG = 80
"""Characters of a value that a message shows whole."""


@dataclass(frozen=True)
class Config:
    """The settings of one command. Its fields are the tables of a recipe; their fields are its keys."""

    COMMAND: ClassVar[str]
    """Whose `--help` lists the settings."""
    DEFAULTS: ClassVar[Mapping[str, Any]] = {}
    """Settings that begin elsewhere in this command than their own class says."""

    @classmethod
    def tables(cls) -> dict[str, type]:
        """Table -> the settings class that it holds."""
        hints = get_type_hints(cls)
        return {field.name: hints[field.name] for field in fields(cls)}

    @classmethod
    def owners(cls) -> dict[str, str]:
        """Setting -> the table it belongs to. Names are unique over all tables, so flags need no prefix."""
        return {field.name: table for table, kind in cls.tables().items() for field in fields(kind)}

    def check(self) -> None:
        """What no part can see alone. Raises ConfigError."""

    def idle(self) -> dict[str, str]:
        """Settings that would do nothing here, with the reason: refused when given, and not written down."""
        return {}

    def to_toml(self) -> str:
        """The resolved settings as a recipe that loads again; unset ones and ones that cannot act are left out."""
        import tomli_w

        idle = self.idle()
        tables = {
            table: {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in keys.items()
                if value is not None and key not in idle
            }
            for table, keys in asdict(self).items()
        }
        return tomli_w.dumps(tables)


C = TypeVar("C", bound=Config)


@dataclass(frozen=True)
class RunConfig(Config):
    """Everything that decides a run of `dapo train`."""

    COMMAND = "train"

    algorithm: AlgorithmSettings
    model: ModelSettings
    data: DataSettings
    reward: RewardSettings
    rollout: RolloutSettings
    collection: CollectionSettings
    training: TrainingSettings
    run: RunSettings
    alarms: AlarmSettings

    def check(self) -> None:
        _check_together(self)

    def idle(self) -> dict[str, str]:
        algorithm = Algorithm.of(self.algorithm)
        return {name: reason for name, acts, reason in _ACTS_ONLY if not acts(self, algorithm)}


TABLES: dict[str, type] = RunConfig.tables()
OWNER: dict[str, str] = RunConfig.owners()


def load_config(recipe: Path | None, flags: Mapping[str, Any], *, saved: Path | None = None) -> RunConfig:
    """The settings of `dapo train`; see `load`."""
    return load(RunConfig, recipe, flags, saved=saved)


def load(kind: type[C], recipe: Path | None, flags: Mapping[str, Any], *, saved: Path | None = None) -> C:
    """Recipe first, flags over it. Raises ConfigError for anything unknown, malformed or without effect.

    flags: setting -> value, strings as typed or already of the right type. saved: the resolved settings of a run
    that goes on, below both.
    """
    layers = [_read_recipe(kind, path) for path in (saved, recipe) if path is not None]
    given = {name: value for layer in (*layers, flags) for name, value in layer.items()}
    for name in given:
        if name not in kind.owners():
            raise _unknown_setting(kind, name)
    filled = {**kind.DEFAULTS, **given}
    config = kind(**{table: make_settings(settings, filled) for table, settings in kind.tables().items()})
    config.check()
    for name, reason in config.idle().items():
        if name in given:
            raise ConfigError(f"{name} is given but {reason}", fix=f"leave {name} out")
    return config


def make_settings(kind: type[T], given: Mapping[str, Any]) -> T:
    """One part's settings from those of `given` that are its own; strings as typed or values of the right type.

    Raises ConfigError for a value that is malformed or refused.
    """
    names = get_type_hints(kind)
    if kind is RewardSettings:
        given = own_reward(given)
    return kind(**{name: _convert(kind, name, value) for name, value in given.items() if name in names})


def _unknown_setting(kind: type[Config], name: str) -> ConfigError:
    peer = find(name)
    if peer is not None:
        problem, fix = explain(peer, kind.owners(), name, flags=False)
        return ConfigError(problem, fix=fix)
    guess = nearest_setting(name, kind.owners())
    return ConfigError(
        f"unknown setting {name}",
        fix=f"did you mean {guess}?" if guess else f"`dapo {kind.COMMAND} --help` lists the settings",
    )


def _read_recipe(kind: type[Config], path: Path) -> dict[str, Any]:
    """The recipe's keys, which stand under their table's heading or under none."""
    content, owners = _read_toml(path), kind.owners()
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if not isinstance(value, dict):
            flat[key] = value
            continue
        for name in _leaves(key, value):
            # `actor_rollout_ref.rollout.n = 8` is a table in a table, `data.train_files` a key of one that we have too.
            if name.split(".", 1)[1] not in owners and find(name):
                raise _unknown_setting(kind, name)
        if key not in kind.tables():
            raise ConfigError(f"unknown table [{key}] in {path}", fix=f"use one of {', '.join(kind.tables())}")
        for name, inner in value.items():
            if owners.get(name, key) != key:
                raise ConfigError(f"{name} stands under [{key}] in {path}", fix=f"put it under [{owners[name]}]")
            if name in flat:
                raise ConfigError(f"{name} stands twice in {path}", fix=f"keep the one under [{key}]")
            flat[name] = inner
    return flat


def _leaves(name: str, value: Any) -> list[str]:
    """The dotted names of everything in a table."""
    if not isinstance(value, dict):
        return [name]
    return [leaf for key, inner in value.items() for leaf in _leaves(f"{name}.{key}", inner)]


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe or a device could keep us waiting for ever
            raise ConfigError(f"recipe {path} is not a regular file", fix="save the settings to a file first")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ConfigError:
        raise
    except FileNotFoundError:
        guess = nearest_place(str(path))
        fix = f"did you mean {guess}?" if guess else "name a TOML file, such as recipes/quickstart.toml"
        raise ConfigError(f"recipe {path} does not exist", fix=fix) from None
    except (OSError, ValueError, RecursionError) as problem:  # bad TOML or UTF-8, a NUL in the path, deep nesting
        raise ConfigError(f"recipe {path} cannot be read: {problem}", fix="write it as TOML") from problem


def _convert(kind: type, name: str, value: Any) -> Any:
    from pydantic import TypeAdapter, ValidationError

    expected = get_type_hints(kind)[name]
    try:
        converted = TypeAdapter(expected).validate_python(value)
    except ValidationError:
        raise _of_wrong_kind(kind, name, value) from None
    if isinstance(value, bool) and not isinstance(converted, bool):
        raise _of_wrong_kind(kind, name, value)
    if isinstance(converted, int) and not -(2**63) <= converted < 2**63:
        raise ConfigError(f"{name} is {_shown(value)}: it does not fit into 64 bits", fix="use a smaller number")
    return converted


def _of_wrong_kind(kind: type, name: str, value: Any) -> ConfigError:
    wrong, right = wrong_kind(kind_of(kind, name), _shown(value))
    return ConfigError(f"{name} is {_shown(value)}, {wrong}", fix=f"write {right}")


def _shown(value: Any) -> str:
    """The value as it was written, the beginning of a long one; TOML's hexadecimal numbers can have more digits than
    Python is willing to show."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= _LONG else f"{text[: _LONG // 2]}... ({len(text)} characters)"


def _check_together(config: RunConfig) -> None:
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
