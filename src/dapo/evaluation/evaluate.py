"""One evaluation from start to end: what can be refused cheaply is refused first, and what was done is not redone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import torch

from dapo.checkpoints.model_of_run import locate_model
from dapo.checkpoints.run_lock import only_process
from dapo.coordination.generation import Clock, ScoredGeneration
from dapo.data.chat import ANSWERING, prints_the_time
from dapo.data.prompts import PromptSet, encode_prompts
from dapo.data.sources import load_rows
from dapo.errors import ConfigError
from dapo.evaluation.identity import identity_of, weights_digest
from dapo.evaluation.progress import EvalProgress
from dapo.evaluation.report import Report, make_report, report_json
from dapo.evaluation.settings import EvalConfig
from dapo.evaluation.store import Answer, AnsweredRow, EvalStore, default_path
from dapo.evaluation.votes import VOTES
from dapo.models.loading import load_model, load_tokenizer
from dapo.records import Draw, Group
from dapo.rewards.check import check_answers
from dapo.rewards.pool import RewardPool
from dapo.rollout.torch_engine import TorchEngine

_ANY_DAY = datetime(2000, 1, 1)
"""An evaluation is known by its prompts as they would be on this day, whatever day it is: it is found again later."""


@dataclass(frozen=True)
class Evaluated:
    """A finished evaluation."""

    report: Report
    results: Path
    """Where the report is as JSON."""


def evaluate(config: EvalConfig, progress: EvalProgress) -> Evaluated:
    """Answer every row n times, score, and count. Rows that an earlier call finished are taken from its folder.

    Raises ConfigError when the folder holds an evaluation with other settings, data, reward or weights.
    """
    device = _device(config.evaluation.device)
    rows = load_rows(config.data, model_hub=config.model.model_hub)
    with ExitStack() as stack:
        rewards = stack.enter_context(RewardPool(config.reward))
        location = locate_model(config.model, notify=progress.notice)
        tokenizer = load_tokenizer(location, config.model)
        prompts = encode_prompts(rows, config.data, tokenizer, _ANY_DAY)
        check_answers(config.reward, prompts.prompts)
        rewards.check(prompts.prompts)
        identity = identity_of(config, prompts.prompts)
        data = (config.data.dataset_path, config.data.dataset_loader_fn)
        given = config.evaluation.save_path
        store = EvalStore(Path(given) if given else default_path(str(config.model.ckpt), data, identity))
        store.check(identity)
        started = store.start_time() or datetime.now()
        if prints_the_time(tokenizer):
            prompts = encode_prompts(rows, config.data, tokenizer, started)
        for notice in _notices(prompts):
            progress.notice(notice)
        model = load_model(location, tokenizer, config.model, device)
        engine = TorchEngine(
            model, max_num_seqs=config.evaluation.max_num_seqs, kv_cache_gb=config.evaluation.kv_cache_gb
        )
        for notice in engine.check(prompts.prompts, config.evaluation.max_new_tokens):
            progress.notice(notice)
        identity = replace(identity, weights=weights_digest(model.module))
        store.check(identity)
        stack.enter_context(_folder(store.path))
        store.begin(identity, started)
        answered = _answer(config, prompts, store, engine, rewards, progress)
    report = make_report(answered, right_from=config.evaluation.right_from, seed=config.evaluation.seed)
    store.write_results(_results(config, prompts, report))
    return Evaluated(report, store.results)


def _answer(
    config: EvalConfig,
    prompts: PromptSet,
    store: EvalStore,
    engine: TorchEngine,
    rewards: RewardPool,
    progress: EvalProgress,
) -> list[AnsweredRow]:
    """All rows with their answers, the ones that are finished already included."""
    finished = store.finished()
    draws = [Draw(number, prompt) for number, prompt in enumerate(prompts.prompts) if number not in finished]
    if finished:
        progress.notice(f"{len(finished)} of {len(prompts.prompts)} rows are answered already, in {store.path}")
    counters = engine.counters
    generate = ScoredGeneration(
        engine,
        rewards,
        config.evaluation.sampling,
        config.evaluation.seed,
        Clock(),
        lambda: progress.advance(counters.finished, counters.sampled_tokens),
    )
    unjudged = 0
    progress.begin(len(draws) * config.evaluation.n)
    for group in generate(draws, 0):
        if group is None:
            continue
        failures = sum(rewards.failures.values())
        row = _answered(group, config.reward.reward, failures - unjudged)
        unjudged = failures
        store.append(row, [completion.text for completion in group.completions])
        finished[row.draw] = row
    return list(finished.values())


def _answered(group: Group, reward: str | None, unjudged: int) -> AnsweredRow:
    vote = VOTES[reward] if reward is not None else None
    answers = tuple(
        Answer(
            length=len(completion.tokens),
            truncated=completion.truncated,
            reward=score.value,
            score=score.metrics.get("acc", score.value),
            vote=None if vote is None else vote(completion.text),
        )
        for completion, score in zip(group.completions, group.scores, strict=True)
    )
    prompt = group.prompt
    asked = [message["content"] for message in prompt.messages if message["role"] not in ANSWERING]
    question = str(asked[-1]) if asked else prompt.text
    return AnsweredRow(group.id, prompt.index, prompt.text, question, prompt.answer, answers, unjudged)


def _notices(prompts: PromptSet) -> Sequence[str]:
    lines = prompts.notices()
    if prompts.distinct < prompts.rows_read and not prompts.dropped_duplicates:
        lines.append("rows that ask the same problem count as one problem with more answers")
    return lines


def _results(config: EvalConfig, prompts: PromptSet, report: Report) -> dict[str, object]:
    return {
        "model": config.model.ckpt,
        "data": config.data.dataset_path or config.data.dataset_loader_fn,
        "reward": config.reward.reward or config.reward.reward_fn_path,
        "right_from": config.evaluation.right_from,
        "rows_read": prompts.rows_read,
        "rows_dropped_as_duplicates": prompts.dropped_duplicates,
        "rows_dropped_as_too_long": prompts.dropped_too_long,
        **report_json(report),
    }


def _folder(path: Path) -> AbstractContextManager[None]:
    """Make the folder and hold its lock."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the folder {path} cannot be created: {error.strerror or error}", fix="choose another --save-path"
        ) from error
    return only_process(path)


def _device(name: str) -> torch.device:
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    number = 0 if name == "auto" else int(name)
    if number >= torch.cuda.device_count():
        raise ConfigError(f"device is {number} but there are {torch.cuda.device_count()} GPUs", fix="use cpu or auto")
    return torch.device("cuda", number)
