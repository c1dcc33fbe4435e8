"""A whole DAPO step (answers, rewards, update) against TRL's GRPOTrainer with the DAPO loss: time and memory.

Both write 8 answers to the same 8 prompts and make one optimizer step on all 64. Dynamic sampling is off here, since
TRL has none: what is compared is the same work.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from typing import Any

from side_by_side import Contestant, Requests, serve_if_contestant, take_turns


def dapo(options: dict[str, Any], requests: Requests) -> None:
    """Each task is one step."""
    from dapo.config import load_config
    from dapo.coordination.generation import ScoredGeneration
    from dapo.coordination.parts import assemble
    from dapo.sampling.dynamic_sampler import DynamicSampler
    from dapo.tracking.plain_display import PlainDisplay
    from dapo.training.batch import answers_of, judge_groups

    with tempfile.TemporaryDirectory() as folder:
        config = load_config(None, options["settings"] | {"save_path": f"{folder}/run"})
        with assemble(config, PlainDisplay(sys.stderr)) as parts:
            generation = ScoredGeneration(
                parts.engine, parts.rewards, config.rollout.sampling, config.run.seed, parts.clock
            )
            sampler = DynamicSampler(config.collection, parts.stream, generation, filtering=False)

            def step() -> dict[str, float]:
                tokens, started = parts.engine.counters.sampled_tokens, time.perf_counter()
                collection = sampler.next_batch(0)
                assert collection is not None, "the epochs of the settings do not end"
                judged = judge_groups(
                    collection.groups, parts.algorithm, parts.engine.limit(config.rollout.max_new_tokens)
                )
                parts.trainer.update(answers_of(judged, parts.algorithm), config.training.lr)
                seconds = time.perf_counter() - started
                return {"seconds": seconds, "tokens": parts.engine.counters.sampled_tokens - tokens}

            step()
            requests.ready("torch", "transformers", "dapo-rl")
            for _ in requests:
                requests.answer(step())


def trl(options: dict[str, Any], requests: Requests) -> None:
    """Each task is one step of a training that waits in between; the first, which warms up, is not asked for."""
    from transformers import TrainerCallback
    from trl_trainer import make_trainer

    class StepByStep(TrainerCallback):
        def __init__(self) -> None:
            self.tasks = iter(requests)
            self.started = 0.0

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step and next(self.tasks, None) is None:
                sys.exit(0)
            self.started = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            seconds = time.perf_counter() - self.started
            if state.global_step == 1:
                requests.ready("torch", "transformers", "trl")
            else:
                requests.answer({"seconds": seconds})

    make_trainer(options["folder"], options["problems"], StepByStep(), **options["settings"]).train()


FASTEST = {"model_init_kwargs": {"dtype": "bfloat16"}, "gradient_checkpointing": False}
"""What makes TRL fastest on a CPU, at the price of weights and moments in bfloat16 without masters. By default it
holds them in float32, computes in bfloat16, and computes activations twice."""

SHORT_OF = "dapo keeps float32 masters and moments, 1.5 GiB, which TRL does not when it is set up so"
"""What the process holds that the one of the last row does not."""


def main() -> None:
    from loaded_model import arithmetic_prompts, arithmetic_task, bundled, problems_of
    from results import Row, add_options, load_at_start, middle, ratio, report, versions

    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument("--trl-python", required=True, help="Python of an environment with requirements-trl.txt")
    arguments = parser.parse_args()
    load = load_at_start()
    groups, tokens = (2, 8) if arguments.tiny else (8, 128)
    settings = {
        "ckpt": bundled(),
        "dtype": "bfloat16",
        "dataset_path": arithmetic_task(groups),
        "reward": "exact_number",
        "dynamic_sampling": False,
        "batch_size": groups,
        "n_samples": 8,
        "max_new_tokens": tokens,
        "lr": 1e-6,
        "mini_bs": 8,
        "gradient_accumulation_steps": groups,
        "epochs": 10**6,
        "train_devices": "cpu",
    }
    # A pass of either has 8 answers, TRL's default; as many passes as it takes go into the step.
    theirs = {"gradient_accumulation_steps": groups, "max_completion_length": tokens, "learning_rate": 1e-6}
    theirs |= {"max_steps": arguments.runs + 2}
    task = {"folder": bundled(), "problems": problems_of(arithmetic_prompts(groups))}
    with ExitStack() as stack:
        enter = stack.enter_context
        ours = enter(Contestant(__file__, "dapo", {"settings": settings}))
        trls = [
            enter(Contestant(__file__, "trl", task | {"settings": theirs | more}, python=arguments.trl_python))
            for more in ({}, FASTEST)
        ]
        mine, default, fastest = take_turns([(side, {}) for side in [ours, *trls]], arguments.runs)
    what = f"{groups} prompts x 8 answers x up to {tokens} tokens"
    seconds = [f"{middle(runs):.1f} s a step" for runs in (mine, default, fastest)]
    memory = [f"{runs[-1]['peak_bytes'] / 2**30:.1f} GiB" for runs in (mine, default, fastest)]
    shares = [mine[-1]["peak_bytes"] / other[-1]["peak_bytes"] for other in (default, fastest)]
    rows = [
        Row(what, seconds[0], f"TRL, its defaults: {seconds[1]}", ratio(default, mine), at_least=3.0),
        Row(
            what,
            seconds[0],
            f"TRL, all in bfloat16, activations kept: {seconds[2]}",
            ratio(fastest, mine),
            at_least=3.0,
        ),
        Row("peak memory", memory[0], f"TRL, its defaults: {memory[1]}", shares[0], at_most=1.0),
        Row(
            "peak memory",
            memory[0],
            f"TRL, all in bfloat16, activations kept: {memory[2]}",
            shares[1],
            at_most=1.0,
            reason=SHORT_OF,
        ),
    ]
    facts = {
        "load": load,
        "versions": versions({side.name: side.versions for side in (ours, trls[0])}),
        "runs": f"{arguments.runs} steps of each, in turns; medians",
        "model": "SmolLM2-135M in bfloat16; dapo keeps float32 masters and moments",
        "tokens": f"{middle(mine, 'tokens'):.0f} sampled by dapo in a step",
        "memory": "of all processes of a side, each at its highest",
    }
    report("A whole step", rows, facts, write=not arguments.tiny)


if __name__ == "__main__":
    serve_if_contestant({"dapo": dapo, "trl": trl})
    main()
