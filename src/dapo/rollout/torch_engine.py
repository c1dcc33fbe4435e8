"""The built-in rollout engine: continuous batching on the very module that is being trained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dapo.errors import ConfigError, ModelError, RolloutError
from dapo.models.language_model import LanguageModel
from dapo.models.packed_attention import Family
from dapo.models.packed_weights import PackedWeights
from dapo.records import AnswerLimit, Completion, Prompt
from dapo.rollout.engine import Finished, Request, RolloutCounters
from dapo.rollout.kv_cache import CacheShape, DecodeAttention, KVCache, PrefillAttention, PromptStates
from dapo.rollout.scheduler import RunningSequence, Scheduler
from dapo.rollout.settings import Sampling
from dapo.rollout.token_sampling import draw_tokens

PREFILL_TOKENS = 4096
"""Most prompt tokens in one pass, unless one prompt alone is longer."""


class TorchEngine:
    """Generates with a `LanguageModel` in this process. Weight updates need no copy: the parameters are shared."""

    def __init__(self, model: LanguageModel, *, max_num_seqs: int, kv_cache_gb: float) -> None:
        self.model = model
        self.max_num_seqs = max_num_seqs
        self.kv_cache_gb = kv_cache_gb
        self.counters = RolloutCounters()
        self.version = 0
        self._scheduler = Scheduler()
        self._work: _Work | None = None
        """Held while something is being written: between rollouts its memory is the trainer's."""

    def check(self, prompts: Sequence[Prompt], max_new_tokens: int) -> list[str]:
        """Refuse before a run begins what `submit` would refuse in its middle; returns what a person should know.

        Raises ConfigError for a prompt without room for an answer, a sequence that the model's attention or positions
        do not carry or a cache without room for one, and ModelError for a tokenizer that is not the model's.
        """
        embeddings: Any = self.model.module.get_input_embeddings()
        known = embeddings.weight.shape[0]
        for prompt in prompts:
            if max(prompt.tokens) >= known:
                raise ModelError(
                    f"the tokenizer makes token {max(prompt.tokens)} of prompt {prompt.index}, "
                    f"but the model knows only {known}",
                    fix="use the tokenizer that belongs to the model",
                )
        limits = [self._limit(prompt, max_new_tokens) for prompt in prompts]
        longest, limit = max(zip(prompts, limits, strict=True), key=lambda pair: len(pair[0].tokens) + pair[1])
        self._refuse_inexact(longest, limit)
        self._affordable_slots(len(longest.tokens) + limit)
        cut = [limit for limit in limits if limit < max_new_tokens]
        if not cut:
            return []
        return [
            f"{len(cut)} of {len(prompts)} prompts leave less room than max_new_tokens {max_new_tokens} in the model's "
            f"context of {self.model.context_length}: their answers are cut earlier, the shortest at {min(cut)} tokens"
        ]

    def _refuse_inexact(self, prompt: Prompt, limit: int) -> None:
        exact, length = self.model.exact, len(prompt.tokens) + limit
        if length > exact.tokens:
            raise ConfigError(
                f"prompt {prompt.index} with an answer of {limit} tokens has {length}, but "
                f"{type(self.model.module).__name__} is computed rightly up to {exact.tokens}: {exact.reason}",
                fix=f"lower max_prompt_tokens and max_new_tokens so that their sum is at most {exact.tokens}",
            )

    def limit(self, max_new_tokens: int) -> AnswerLimit:
        """Where this engine cuts answers."""
        return AnswerLimit(max_new_tokens, self.model.context_length)

    def submit(self, requests: Sequence[Request]) -> None:
        for request in requests:
            limit = self._limit(request.draw.prompt, request.sampling.max_new_tokens)
            sequence = RunningSequence.of(request, limit)
            self._affordable_slots(sequence.longest)
            self._scheduler.waiting.append(sequence)

    @torch.inference_mode()  # cheaper than no_grad where a step is thousands of small operations
    def step(self) -> list[Finished]:
        if not self._scheduler.unfinished:
            return []
        if self._work is None or not (self._scheduler.running or self._work.fits(self._scheduler.waiting[0])):
            self._work = self._begin()
        if self._work.weights_changed:
            raise RolloutError(
                "the weights have changed while answers are being written", fix="call load() after each update"
            )
        finished = self._work.step()
        if not self._scheduler.unfinished:
            self._work = None
        return self._finished(finished)

    def abort(self) -> list[Request]:
        self._work = None
        return [
            replace(sequence.request, tokens=tuple(sequence.tokens), logprobs=tuple(sequence.logprobs))
            for sequence in self._scheduler.clear()
        ]

    def load(self, version: int) -> None:
        """The weights are the trainer's own and are new already; what old ones computed is forgotten."""
        self.submit(self.abort())
        self.version = version

    def _begin(self) -> _Work:
        """Room for the requests that wait, which the first of them and all that are like it then take."""
        waiting = self._scheduler.waiting
        longest = max(sequence.longest for sequence in waiting)
        slots = min(self._affordable_slots(longest), len(waiting))
        cache = KVCache(_cache_shape(self.model), slots, longest, self.model.dtype, self.model.device)
        weights = PackedWeights(self.model.module, slots)
        sampling = waiting[0].request.sampling
        return _Work(self.model, self.counters, sampling, self._scheduler, slots, cache, weights)

    def _limit(self, prompt: Prompt, max_new_tokens: int) -> int:
        """Most tokens of an answer to `prompt`."""
        limit = self.limit(max_new_tokens).of(prompt)
        if limit < 1:
            raise ConfigError(
                f"prompt {prompt.index} has {len(prompt.tokens)} tokens, "
                f"which leaves no room in the model's context of {self.model.context_length}",
                fix="lower max_prompt_tokens",
            )
        return limit

    def _affordable_slots(self, longest: int) -> int:
        per_token = _cache_shape(self.model).bytes_per_token(self.model.dtype)
        need = per_token * longest / 2**30
        slots = int(min(self.kv_cache_gb / need, self.max_num_seqs))
        if slots < 1:
            raise ConfigError(
                f"kv_cache_gb is {self.kv_cache_gb} but one sequence of {longest} tokens needs {need:.2f}",
                fix="raise kv_cache_gb, or lower max_new_tokens or max_prompt_tokens",
            )
        return slots

    def _finished(self, sequences: Sequence[RunningSequence]) -> list[Finished]:
        if not sequences:
            return []
        texts = self.model.tokenizer.batch_decode([sequence.tokens for sequence in sequences], skip_special_tokens=True)
        return [
            Finished(
                sequence.request,
                Completion(
                    tokens=tuple(sequence.tokens),
                    logprobs=tuple(sequence.logprobs),
                    text=_cut_after_stop(text, sequence.request.sampling.stop_strings),
                    stop_reason=sequence.stop_reason or "length",
                ),
            )
            for sequence, text in zip(sequences, texts, strict=True)
        ]


class _Work:
    """What is being written: its slots, and the states that the next tokens are drawn from."""

    def __init__(
        self,
        model: LanguageModel,
        counters: RolloutCounters,
        sampling: Sampling,
        scheduler: Scheduler,
        slots: int,
        cache: KVCache,
        weights: PackedWeights,
    ) -> None:
        self.model = model
        self.counters = counters
        self.sampling = sampling
        self.scheduler = scheduler
        self.slots = slots
        self.cache = cache
        self.weights = weights
        self._parameters = list(model.module.parameters())  # once: finding them costs more than reading them
        self._written_by = self._weights_state
        self.contexts: dict[tuple[int, ...], tuple[PromptStates, Tensor]] = {}
        """By tokens: what answers begin behind, mostly a prompt whose other answers still wait, with its last hidden
        state (1, W)."""
        self.hidden: list[Tensor] = []
        """Last hidden states (R, W), to be joined; several sequences may draw from one row."""
        self.row: list[int] = []
        """The row of `hidden` that each running sequence draws from, by slot."""

    @property
    def weights_changed(self) -> bool:
        """Whether a parameter was changed in place since the work began."""
        return self._weights_state != self._written_by

    @property
    def _weights_state(self) -> int:
        return sum(parameter._version for parameter in self._parameters)

    def step(self) -> list[RunningSequence]:
        """Start what there is room for and give every running sequence one token; returns the finished ones."""
        with self.weights:
            self._start(self.scheduler.admit(self.slots, self.fits))
            self._draw()
            finished = self.scheduler.release_finished(self.cache.move)
            self.counters.finished += len(finished)
            self._decode()
        return finished

    def fits(self, sequence: RunningSequence) -> bool:
        """Whether it can run beside the others: drawn alike, and no longer than the cache was made for."""
        alike = replace(sequence.request.sampling, n=self.sampling.n, max_new_tokens=self.sampling.max_new_tokens)
        return alike == self.sampling and sequence.longest <= self.cache.longest

    def _start(self, started: list[RunningSequence]) -> None:
        """Compute contexts that are new, once each, and copy them into the slots of their answers."""
        if not started:
            return
        contexts = [sequence.context for sequence in started]
        for part in _passes([context for context in dict.fromkeys(contexts) if context not in self.contexts]):
            self._prefill(part)
        rows: dict[tuple[int, ...], int] = {}
        for slot, context in enumerate(contexts, start=len(self.row)):
            states, last = self.contexts[context]
            self.cache.fill(slot, states)
            if context not in rows:
                rows[context] = sum(len(part) for part in self.hidden)
                self.hidden.append(last)
            self.row.append(rows[context])
        waiting = self.scheduler.waiting[0].context if self.scheduler.waiting else None
        self.contexts = {context: kept for context, kept in self.contexts.items() if context == waiting}

    def _prefill(self, contexts: Sequence[tuple[int, ...]]) -> None:
        packing = PrefillAttention(self.model.attention([Family(len(context)) for context in contexts]))
        tokens = torch.tensor([token for context in contexts for token in context], device=self.model.device)
        hidden = self.model.hidden(tokens, packing.position_T, packing)
        self.counters.prompt_tokens += len(tokens)
        start = 0
        for context in contexts:
            run = slice(start, start + len(context))
            self.contexts[context] = packing.states(run), hidden[run.stop - 1 : run.stop]
            start = run.stop

    def _draw(self) -> None:
        running = self.scheduler.running
        logits = self.model.logits(torch.cat(self.hidden))
        device = logits.device
        row = torch.tensor(self.row, device=device)
        uniform = torch.tensor([sequence.uniforms.random() for sequence in running], dtype=torch.float64, device=device)
        drawn = draw_tokens(logits, row, uniform, self.sampling)
        self.counters.sampled_tokens += len(running)
        for sequence, (token, logprob) in zip(running, drawn.to_host(), strict=True):
            if not math.isfinite(logprob):
                raise RolloutError(
                    f"prompt {sequence.request.draw.prompt.index}: the probabilities of the next token are not finite "
                    f"after {len(sequence.tokens)} tokens",
                    fix="the weights have diverged or were damaged: lower lr, or train in float32",
                )
            sequence.tokens.append(token)
            sequence.logprobs.append(logprob)
            if token in self.model.stop_ids or self._ends_by_string(sequence):
                sequence.stop_reason = "stop"
            elif len(sequence.tokens) == sequence.limit:
                sequence.stop_reason = "length"

    def _ends_by_string(self, sequence: RunningSequence) -> bool:
        if not self.sampling.stop_strings:
            return False
        # A token holds at least one byte of the string, and its text may begin one token earlier.
        tail = max(len(string.encode()) for string in self.sampling.stop_strings) + 1
        text = self.model.tokenizer.decode(sequence.tokens[-tail:])
        return any(string in text for string in self.sampling.stop_strings)

    def _decode(self) -> None:
        running = self.scheduler.running
        self.hidden, self.row = [], list(range(len(running)))
        if running:
            packing = DecodeAttention(self.cache, len(running))
            last = torch.tensor([sequence.tokens[-1] for sequence in running], device=self.model.device)
            self.hidden = [self.model.hidden(last, packing.position_T, packing)]


def _cache_shape(model: LanguageModel) -> CacheShape:
    config = model.module.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return CacheShape(config.num_hidden_layers, heads, model.head_width)


def _passes(contexts: Sequence[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
    """Cut into runs of at most PREFILL_TOKENS tokens."""
    batch: list[tuple[int, ...]] = []
    size = 0
    for context in contexts:
        if batch and size + len(context) > PREFILL_TOKENS:
            yield batch
            batch, size = [], 0
        batch.append(context)
        size += len(context)
    if batch:
        yield batch


def _cut_after_stop(text: str, stop_strings: Sequence[str]) -> str:
    """The text up to the end of the first stop string in it."""
    ends = [text.find(string) + len(string) for string in stop_strings if string in text]
    return text[: min(ends)] if ends else text
