"""A person's own reward function: found in its file, its contract told apart by signature.

    reward_fn(record) -> float | dict                                    one RewardRecord per answer
    compute_score(data_source, solution_str, ground_truth, extra_info)   verl; once per answer
    reward_func(prompts, completions, **columns) -> list[float]          TRL; once per group, by keyword

Loading runs the file's code, so it happens in a reward worker; so does every call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dapo.errors import RewardError
from dapo.records import Completion, Prompt, Score
from dapo.rewards.record import reward_record
from dapo.rewards.row_columns import RewardNeeds, offered, row_columns
from dapo.rewards.values import to_score, to_scores
from dapo.user_file import describe_exception, load_function

Contract = Literal["record", "compute_score", "batch"]
Sample = tuple[int, Completion]
"""Which answer of the prompt, from 0, and the answer."""

DEFAULT_NAMES = ("reward_fn", "compute_score", "reward_func")
"""Looked for in this order when the path names no function."""
_CONTRACTS = (
    "write it as reward_fn(record), "
    "compute_score(data_source, solution_str, ground_truth, extra_info=None) "
    "or reward_func(prompts, completions, **columns)"
)


@dataclass(frozen=True)
class UserFunction:
    """A loaded reward function and how it wants to be called."""

    function: Callable[..., Any]
    contract: Contract
    name: str
    """`file.py:function`, for messages."""

    @property
    def whole_group(self) -> bool:
        """Whether one call scores all answers of a prompt."""
        return self.contract == "batch"

    @property
    def needs(self) -> RewardNeeds:
        """What has no default value and only a row can give."""
        of_rows: list[str] = []
        if self.contract == "batch":
            of_rows = [name for name in _required(self.function) if name not in _OF_THE_GROUP]
        elif self.contract == "compute_score":
            of_rows = [name for name in _required(self.function) if name == "ground_truth"]
        return RewardNeeds(self.name, self.whole_group, tuple(of_rows))

    def score(self, prompt: Prompt, samples: Sequence[Sample]) -> list[Score]:
        """One score per sample. The function's exceptions become RewardError with the row and the last frame."""
        places = [f"{self.name}, row {prompt.index}, sample {index}" for index, _ in samples]
        try:
            if self.contract == "batch":
                returned = self.function(**_batch_arguments(self.function, prompt, samples, places[0]))
                return to_scores(returned, places)
            return [
                to_score(self._call(prompt, sample, place), place)
                for sample, place in zip(samples, places, strict=True)
            ]
        except (RewardError, MemoryError):
            raise
        except BaseException as error:
            raise _failed_call(error, places[0], samples[0][1].text) from error

    def _call(self, prompt: Prompt, sample: Sample, place: str) -> Any:
        index, completion = sample
        if self.contract == "record":
            return self.function(reward_record(prompt, completion, index))
        source, extra = prompt.row.get("data_source"), prompt.row.get("extra_info")
        arguments = {
            "data_source": source,
            "solution_str": completion.text,
            "ground_truth": prompt.answer,
            "extra_info": {} if extra is None or (isinstance(extra, str) and not extra) else extra,
        }
        required = _required(self.function)
        for name, value in (("data_source", source), ("ground_truth", prompt.answer)):
            if value is None and name not in required:
                del arguments[name]  # the function's own default says what it stands for
        return self.function(**_accepted(self.function, arguments, place))


def load_user_function(path: str, name: str | None) -> UserFunction:
    """The reward function of the file at `path`. Raises RewardError when there is none that can be used."""
    function = load_function(path, name, defaults=DEFAULT_NAMES, setting="reward_fn_path", error=RewardError)
    shown = getattr(function, "__name__", name or "the reward")
    if _is_async(function):
        raise RewardError(
            f"{shown} in {path} is asynchronous; a reward worker scores one answer after another",
            fix="make it a plain `def`; reward_workers sets how many run side by side",
        )
    return UserFunction(function, _contract(function, f"{shown} in {path}"), f"{Path(path).name}:{shown}")


def _is_async(function: Callable[..., Any]) -> bool:
    forms = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    return any(form(function) or form(getattr(function, "__call__", None)) for form in forms)  # noqa: B004


def _contract(function: Callable[..., Any], shown: str) -> Contract:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise RewardError(f"{shown} has no signature that can be read", fix=_CONTRACTS) from error
    needed = _required(function)
    if "completions" in parameters:
        return "batch"
    if {"solution_str", "ground_truth"} <= set(parameters):
        unknown = [name for name in needed if name not in _OF_VERL]
        if unknown:
            raise RewardError(
                f"{shown} needs {', '.join(unknown)}, which compute_score is not given: it gets {', '.join(_OF_VERL)}",
                fix="give the parameter a default value, or write reward_fn(record)",
            )
        return "compute_score"
    first = next(iter(parameters.values()), None)
    if len(needed) == 1 and first is not None and first.name == needed[0] and first.kind in _POSITIONAL:
        return "record"
    signature = f"({', '.join(map(str, parameters.values()))})"
    raise RewardError(f"{shown} takes {signature}, which is none of the three known contracts", fix=_CONTRACTS)


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (*_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)
_OF_VERL = ("data_source", "solution_str", "ground_truth", "extra_info")
_OF_THE_GROUP = ("prompts", "completions", "completion_ids")


def _required(function: Callable[..., Any]) -> list[str]:
    """The parameters without a default value."""
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.default is each.empty and each.kind in _NAMED]


def _batch_arguments(
    function: Callable[..., Any], prompt: Prompt, samples: Sequence[Sample], place: str
) -> dict[str, Any]:
    """TRL's keywords: every column of the row as a list, one entry per completion."""
    n = len(samples)
    columns = {name: [value] * n for name, value in row_columns(prompt).items()}
    chat = bool(prompt.messages)
    texts = [completion.text for _, completion in samples]
    columns["prompts"] = [[dict(message) for message in prompt.messages] if chat else prompt.text] * n
    columns["completions"] = [[{"role": "assistant", "content": text}] if chat else text for text in texts]
    columns["completion_ids"] = [list(completion.tokens) for _, completion in samples]
    return _accepted(function, columns, place)


def _accepted(function: Callable[..., Any], arguments: dict[str, Any], place: str) -> dict[str, Any]:
    """Those of the arguments that the function takes; an argument it needs and we lack is an error."""
    parameters = inspect.signature(function).parameters
    missing = [name for name in _required(function) if name not in arguments]
    if missing:
        raise RewardError(
            f"{place}: the reward needs {', '.join(missing)}, but the row offers {offered(arguments)}",
            fix="give the rows such a column, or give the parameter a default value",
        )
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}


def _failed_call(error: BaseException, place: str, text: str) -> RewardError:
    return RewardError(
        f"{place}: the reward function raised {describe_exception(error)}\n  answer: {shortened(text)!r}",
        fix="make the function return a number for every answer, also for strange ones",
    )


def shortened(text: str, limit: int = 300) -> str:
    """The text with its middle left out when it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters ...] {text[-half:]}"
