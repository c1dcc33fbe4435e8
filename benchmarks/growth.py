"""Growth: cost by number of tokens, time and memory over a long run, and the time until the first token.

Twice the prompts, or twice the answers, should cost twice as much and not more. Over 200 updates neither the time of
an update nor the memory held should grow. From the command to the first token drawn it should take seconds.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from side_by_side import Contestant, Figures, Requests, serve_if_contestant, take_turns

REWARD = 'def reward_fn(record):\n    return float(record.metadata["sample_index"] % 2)\n'
"""Every group disagrees, so that every update is as large as every other."""


def steps(options: dict[str, Any], requests: Requests) -> None:
    """Each task writes answers of a given length and trains on them."""
    from loaded_model import arithmetic_prompts, load

    from dapo.algorithms.settings import Algorithm, AlgorithmSettings
    from dapo.records import Draw
    from dapo.rollout.engine import answer_all
    from dapo.rollout.settings import Sampling
    from dapo.rollout.torch_engine import TorchEngine
    from dapo.training.batch import Answer
    from dapo.training.settings import TrainingSettings
    from dapo.training.update import Trainer

    model = load(options["folder"], "bfloat16")
    model.stop_ids = frozenset()
    engine = TorchEngine(model, max_num_seqs=64, kv_cache_gb=4.0)
    algorithm = Algorithm.of(AlgorithmSettings())
    trainer = Trainer(model, TrainingSettings(), algorithm, temperature=1.0, max_new_tokens=options["length"])
    prompts = arithmetic_prompts(options["most_prompts"])

    def run(count: int, n: int) -> Figures:
        started = time.perf_counter()
        draws = [Draw(number, prompt) for number, prompt in enumerate(prompts[:count])]
        rollouts = [done for done in answer_all(engine, draws, Sampling(n, options["length"]), seed=1) if done]
        answers = [
            Answer(done.draw.id, done.draw.prompt, completion, 1.0 if member % 2 else -1.0)
            for done in rollouts
            for member, completion in enumerate(done.completions)
        ]
        trainer.update(answers, lr=1e-9)
        tokens = sum(len(answer.completion.tokens) for answer in answers)
        return {"seconds": time.perf_counter() - started, "tokens": tokens}

    run(2, 8)
    requests.ready("torch", "transformers", "dapo-rl")
    for task in requests:
        requests.answer(run(task["prompts"], task["answers"]))


def long_run(options: dict[str, Any], requests: Requests) -> None:
    """The one task: many updates of a tiny random model, with the time and memory of each."""
    from dapo.config import load_config
    from dapo.coordination.parts import assemble
    from dapo.coordination.run import Run
    from dapo.coordination.stopping import StopRequest
    from dapo.tracking.plain_display import PlainDisplay

    class Watcher(PlainDisplay):
        def __init__(self) -> None:
            super().__init__(io.StringIO())
            self.seconds: list[float] = []
            self.bytes: list[int] = []

        def step_done(self, step: int, metrics: Mapping[str, Any]) -> None:
            self.seconds.append(metrics["seconds_total"])
            self.bytes.append(resident_bytes())

    requests.ready()
    for _ in requests:
        with tempfile.TemporaryDirectory() as folder:
            make_tiny_model(Path(folder) / "model", options["folder"])
            (Path(folder) / "reward.py").write_text(REWARD)
            settings = options["settings"] | {
                "ckpt": f"{folder}/model",
                "reward_fn_path": f"{folder}/reward.py",
                "save_path": f"{folder}/run",
            }
            watcher = Watcher()
            with assemble(load_config(None, settings), watcher) as parts:
                parts.model.stop_ids = frozenset()  # every answer is equally long at every step
                Run(parts, watcher, StopRequest()).train()
        requests.answer({"seconds": watcher.seconds, "bytes": watcher.bytes})


def make_tiny_model(folder: Path, tokenizer_of: str) -> None:
    """A random Llama of two layers with a real tokenizer."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_of)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def resident_bytes() -> int:
    """Memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def start(options: dict[str, Any], requests: Requests) -> None:
    """Ready once the quick start's run is assembled and its first token is drawn. There is nothing to ask it."""
    from loaded_model import QUICKSTART

    from dapo.config import load_config
    from dapo.coordination.parts import assemble
    from dapo.rollout.engine import answer_all
    from dapo.tracking.plain_display import PlainDisplay

    with tempfile.TemporaryDirectory() as folder:
        config = load_config(QUICKSTART, {"save_path": f"{folder}/run", "train_devices": "cpu"})
        with assemble(config, PlainDisplay(sys.stderr)) as parts:
            draws = parts.stream.take(config.collection.batch_size)
            next(answer_all(parts.engine, draws, config.rollout.sampling, seed=1))
            requests.ready()
            list(requests)


def start_up(options: dict[str, Any]) -> Figures:
    """Seconds from starting a fresh process to its first token."""
    started = time.perf_counter()
    with Contestant(__file__, "start", options):
        return {"seconds": time.perf_counter() - started}


def main() -> None:
    from loaded_model import arithmetic_task, bundled
    from results import Row, add_options, load_at_start, middle, ratio, report, versions

    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    arguments = parser.parse_args()
    load = load_at_start()
    prompts, length, updates = (2, 4, 6) if arguments.tiny else (8, 32, 200)
    edge = max(1, updates // 10)
    settings = {
        "dataset_path": arithmetic_task(80),
        "batch_size": 4,
        "n_samples": 4,
        "max_new_tokens": 32,
        "max_steps": updates,
        "epochs": 10**6,
        "save_interval": 0,
        "train_devices": "cpu",
    }
    options = {"folder": bundled(), "length": length, "most_prompts": 2 * prompts, "settings": settings}
    with ExitStack() as stack:
        side = stack.enter_context(Contestant(__file__, "steps", options))
        sizes = [(prompts, 8), (2 * prompts, 8), (prompts, 16)]
        turns = [(side, {"prompts": count, "answers": n}) for count, n in sizes]
        single, more_prompts, more_answers = take_turns(turns, arguments.runs)
    with Contestant(__file__, "long run", options) as runner:
        course = runner.run()
    starts = [start_up(options) for _ in range(arguments.runs)]
    base = f"{prompts} prompts x 8 answers: {middle(single):.1f} s"
    early, late = (
        {name: median(course[name][part]) for name in ("seconds", "bytes")}
        for part in (slice(edge), slice(-edge, None))
    )
    over = f"{updates} updates of a tiny model, the first {edge} and the last {edge}"
    rows = [
        Row("twice the prompts", f"{middle(more_prompts):.1f} s", base, ratio(more_prompts, single), at_most=2.1),
        Row("twice the answers", f"{middle(more_answers):.1f} s", base, ratio(more_answers, single), at_most=2.1),
        Row(
            f"{over}: time",
            f"{late['seconds']:.3f} s",
            f"{early['seconds']:.3f} s",
            late["seconds"] / early["seconds"],
            at_most=1.05,
        ),
        Row(
            f"{over}: memory",
            f"{late['bytes'] / 2**20:.0f} MiB",
            f"{early['bytes'] / 2**20:.0f} MiB",
            late["bytes"] / early["bytes"],
            at_most=1.05,
        ),
        Row("from the command to the first token", f"{middle(starts):.1f} s", "", middle(starts), " s", at_most=15),
    ]
    facts = {
        "load": load,
        "versions": versions({"dapo": side.versions}),
        "runs": f"{arguments.runs} of each size, in turns, and {arguments.runs} starts; medians. One long run",
        "model": f"SmolLM2-135M in bfloat16, answers of {length} tokens; a random Llama of 2 layers for the long run; "
        "the quick start's recipe for the start",
    }
    report("Growth", rows, facts, write=not arguments.tiny)


if __name__ == "__main__":
    serve_if_contestant({"steps": steps, "long run": long_run, "start": start})
    main()
