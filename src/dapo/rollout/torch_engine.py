"""The built-in rollout engine: continuous batching on the very module that is being trained."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from dapo.errors import ConfigError, ModelError, RolloutError
from dapo.models.language_model import LanguageModel
from dapo.models.packed_attention import Family
from dapo.models.packed_weights import PackedWeights
from dapo.records import AnswerLimit, Completion, Draw, Prompt
from dapo.rollout.engine import Rollout, RolloutCounters
from dapo.rollout.kv_cache import CacheShape, DecodeAttention, KVCache, PrefillAttention, PromptStates
from dapo.rollout.scheduler import RunningSequence, Scheduler, sequence_uniforms
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

    def check(self, prompts: Sequence[Prompt], max_new_tokens: int) -> list[str]:
        """Refuse before a run begins what `rollout` would refuse in its middle; returns what a person should know.

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

    @torch.inference_mode()  # cheaper than no_grad where a step is thousands of small operations
    def rollout(self, draws: Sequence[Draw], sampling: Sampling, seed: int) -> Generator[Rollout | None, None, None]:
        sequences = [sequence for draw in draws for sequence in self._sequences(draw, sampling, seed)]
        if not sequences:
            return
        longest = max(len(sequence.draw.prompt.tokens) + sequence.limit for sequence in sequences)
        slots = min(self._affordable_slots(longest), len(sequences))
        cache = KVCache(_cache_shape(self.model), slots, longest, self.model.dtype, self.model.device)
        weights = PackedWeights(self.model.module, slots)
        generation = _Generation(self.model, self.counters, sampling, Scheduler(sequences, slots), cache, weights)
        missing = {draw.id: sampling.n for draw in draws}
        done: dict[int, list[RunningSequence]] = {draw.id: [] for draw in draws}
        while generation.scheduler.unfinished:
            finished = generation.step()
            whole = False
            for sequence in finished:
                key = sequence.draw.id
                done[key].append(sequence)
                missing[key] -= 1
                if missing[key] == 0:
                    whole = True
                    yield self._rollout(sequence.draw, done.pop(key), sampling)
            if not whole:
                yield None

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

    def _sequences(self, draw: Draw, sampling: Sampling, seed: int) -> list[RunningSequence]:
        limit = self._limit(draw.prompt, sampling.max_new_tokens)
        return [
            RunningSequence(draw, sample, limit, sequence_uniforms(seed, draw.id, sample))
            for sample in range(sampling.n)
        ]

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

    def _rollout(self, draw: Draw, sequences: list[RunningSequence], sampling: Sampling) -> Rollout:
        sequences.sort(key=lambda sequence: sequence.sample)
        texts = self.model.tokenizer.batch_decode([sequence.tokens for sequence in sequences], skip_special_tokens=True)
        return Rollout(
            draw,
            tuple(
                Completion(
                    tokens=tuple(sequence.tokens),
                    logprobs=tuple(sequence.logprobs),
                    text=_cut_after_stop(text, sampling.stop_strings),
                    stop_reason=sequence.stop_reason or "length",
                )
                for sequence, text in zip(sequences, texts, strict=True)
            ),
        )


class _Generation:
    """One call of `rollout` while it runs: its slots, and the states that the next tokens are drawn from."""

    def __init__(
        self,
        model: LanguageModel,
        counters: RolloutCounters,
        sampling: Sampling,
        scheduler: Scheduler,
        cache: KVCache,
        weights: PackedWeights,
    ) -> None:
        self.model = model
        self.counters = counters
        self.sampling = sampling
        self.scheduler = scheduler
        self.cache = cache
        self.weights = weights
        self.prompts: dict[int, tuple[PromptStates, Tensor]] = {}
        """By draw id: prompts of which some answers still wait, with their last hidden state (1, W)."""
        self.hidden: list[Tensor] = []
        """Last hidden states (R, W), to be joined; several sequences may draw from one row."""
        self.row: list[int] = []
        """The row of `hidden` that each running sequence draws from, by slot."""

    def step(self) -> list[RunningSequence]:
        """Start what there is room for and give every running sequence one token; returns the finished ones."""
        with self.weights:
            self._start(self.scheduler.admit())
            self._draw()
            finished = self.scheduler.release_finished(self.cache.move)
            self.counters.finished += len(finished)
            self._decode()
        return finished

    def _start(self, started: list[RunningSequence]) -> None:
        """Compute prompts that are new, once each, and copy them into the slots of their answers."""
        new = {sequence.draw.id: sequence.draw for sequence in started if sequence.draw.id not in self.prompts}
        for draws in _passes(list(new.values())):
            self._prefill(draws)
        rows: dict[int, int] = {}
        for slot, sequence in enumerate(started, start=len(self.row)):
            states, last = self.prompts[sequence.draw.id]
            self.cache.fill(slot, states)
            if sequence.draw.id not in rows:
                rows[sequence.draw.id] = sum(len(part) for part in self.hidden)
                self.hidden.append(last)
            self.row.append(rows[sequence.draw.id])
        waiting = self.scheduler.next_waiting
        self.prompts = {key: kept for key, kept in self.prompts.items() if waiting and waiting.draw.id == key}

    def _prefill(self, draws: list[Draw]) -> None:
        lengths = [len(draw.prompt.tokens) for draw in draws]
        tokens = [token for draw in draws for token in draw.prompt.tokens]
        packing = PrefillAttention(self.model.attention([Family(length) for length in lengths]))
        hidden = self.model.hidden(torch.tensor(tokens, device=self.model.device), packing.position_T, packing)
        self.counters.prompt_tokens += len(tokens)
        start = 0
        for draw, length in zip(draws, lengths, strict=True):
            run = slice(start, start + length)
            self.prompts[draw.id] = packing.states(run), hidden[run.stop - 1 : run.stop]
            start += length

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
                    f"prompt {sequence.draw.prompt.index}: the probabilities of the next token are not finite "
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


def _passes(draws: list[Draw]) -> Iterator[list[Draw]]:
    """Cut into runs of at most PREFILL_TOKENS prompt tokens."""
    batch: list[Draw] = []
    size = 0
    for draw in draws:
        length = len(draw.prompt.tokens)
        if batch and size + length > PREFILL_TOKENS:
            yield batch
            batch, size = [], 0
        batch.append(draw)
        size += length
    if batch:
        yield batch


def _cut_after_stop(text: str, stop_strings: Sequence[str]) -> str:
    """The text up to the end of the first stop string in it."""
    ends = [text.find(string) + len(string) for string in stop_strings if string in text]
    return text[: min(ends)] if ends else text
