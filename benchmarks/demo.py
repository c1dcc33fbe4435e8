"""The quick start's task, one-digit addition: time to a held-out accuracy of 0.8, against TRL with the DAPO loss.

The same model, prompts, reward, learning rate and groups (8 prompts x 8 answers of at most 24 tokens, 4 optimizer
steps on them), each with its own defaults for the rest. After every such update both are measured on the same
held-out problems, 8 answers each; measuring, loading and saving are not counted. Every run has a seed of its own.
TRL's is ended once it has taken PATIENCE times as long as ours with the same seed.
"""

from __future__ import annotations

import argparse
import io
import signal
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from side_by_side import Contestant, Figures, Requests, serve_if_contestant, show_round

STEPS_PER_UPDATE = 4
"""Optimizer steps on the 64 answers of an update, 16 answers each: the recipe's mini_bs."""
PATIENCE = 5
"""After so many times our seconds TRL's run has lost by more than needs showing. A whole one can take half an hour."""
SHORT_OF = "an update takes far less time, but some more of them were needed in these runs"
"""What the row of one update and the accuracies below the table show."""


def dapo(options: dict[str, Any], requests: Requests) -> None:
    """Each task is a whole `dapo train`, ended once the target is reached."""
    from loaded_model import QUICKSTART

    from dapo.config import load_config
    from dapo.coordination.run import train
    from dapo.coordination.stopping import StopRequest
    from dapo.tracking.metrics_log import read_metrics
    from dapo.tracking.plain_display import PlainDisplay

    class Watcher(PlainDisplay):
        """Asks the run to stop after the update that reached the target."""

        def __init__(self, stop: StopRequest) -> None:
            super().__init__(io.StringIO())
            self.stop = stop

        def step_done(self, step: int, metrics: Mapping[str, Any]) -> None:
            if step and metrics["heldout_accuracy"] >= options["target"]:
                self.stop.signal = signal.SIGINT

    def run(seed: int) -> Figures:
        with tempfile.TemporaryDirectory() as folder:
            settings = {
                "seed": seed,
                "dtype": options["dtype"],
                "max_steps": options["most_updates"],
                "max_new_tokens": options["max_new_tokens"],
                "epochs": 1000,
                "eval_interval": 1,
                "save_interval": 0,
                "train_devices": "cpu",
                "save_path": f"{folder}/run",
            }
            stop = StopRequest()
            train(load_config(QUICKSTART, settings), Watcher(stop), stop=stop)
            lines = read_metrics(Path(folder) / "run" / "metrics.jsonl")
        return outcome(
            [line["heldout_accuracy"] for line in lines],
            sum(line["seconds_total"] for line in lines if line["step"]),
            options["target"],
        )

    requests.ready("torch", "transformers", "dapo-rl")
    for task in requests:
        requests.answer(run(task["seed"]))


def trl(options: dict[str, Any], requests: Requests) -> None:
    """Each task is a training from the start, ended once the target is reached or the task's seconds are over."""
    from transformers import TrainerCallback
    from trl_trainer import held_out_accuracy, make_trainer

    class Watcher(TrainerCallback):
        """Times every step, and measures on the held-out problems after each update."""

        def __init__(self, most_seconds: float) -> None:
            self.most_seconds = most_seconds
            self.seconds = 0.0
            self.started = 0.0
            self.accuracies: list[float] = []

        def measure(self) -> float:
            self.accuracies.append(held_out_accuracy(trainer, options["held_out"], 8, options["max_new_tokens"]))
            return self.accuracies[-1]

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.started = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.seconds += time.perf_counter() - self.started
            if state.global_step % STEPS_PER_UPDATE == 0:
                reached = self.measure() >= options["target"]
                control.should_training_stop = reached or self.seconds > self.most_seconds

    requests.ready("torch", "transformers", "trl")
    for task in requests:
        watcher = Watcher(task["most_seconds"])
        trainer = make_trainer(
            options["folder"],
            options["problems"],
            watcher,
            seed=task["seed"],
            learning_rate=1e-5,
            per_device_train_batch_size=64 // STEPS_PER_UPDATE,
            steps_per_generation=STEPS_PER_UPDATE,
            gradient_accumulation_steps=1,
            gradient_checkpointing=False,  # which is not TRL's default, but faster
            max_completion_length=options["max_new_tokens"],
            max_steps=STEPS_PER_UPDATE * options["most_updates"],
            bf16=options["dtype"] == "bfloat16",
            model_init_kwargs={"dtype": "float32"},  # bfloat16 weights alone would round such small updates away
        )
        watcher.measure()
        trainer.train()
        requests.answer(outcome(watcher.accuracies, watcher.seconds, options["target"]))


def outcome(accuracies: list[float], seconds: float, target: float) -> Figures:
    """accuracies: before the first update and after each. A run that ends short of the target has only begun to
    show how long it takes, which the table says."""
    update = seconds / (len(accuracies) - 1)
    return {"seconds": seconds, "update": update, "accuracies": accuracies, "reached": accuracies[-1] >= target}


def main() -> None:
    from loaded_model import arithmetic_prompts, bundled, problems_of
    from results import Row, add_options, load_at_start, middle, ratio, report, versions

    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument("--trl-python", required=True, help="Python of an environment with requirements-trl.txt")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of both (default float32)")
    arguments = parser.parse_args()
    load = load_at_start()
    common = {"target": 0.8, "dtype": arguments.dtype}
    common |= {"most_updates": 1, "max_new_tokens": 4} if arguments.tiny else {"most_updates": 30, "max_new_tokens": 24}
    problems = {name: problems_of(arithmetic_prompts(rows, name)) for name, rows in (("train", 80), ("heldout", 20))}
    theirs = {"folder": bundled(), "problems": problems["train"], "held_out": problems["heldout"]}
    with ExitStack() as stack:
        ours = stack.enter_context(Contestant(__file__, "dapo", common))
        peer = stack.enter_context(Contestant(__file__, "trl", common | theirs, python=arguments.trl_python))
        mine, others = _rounds(ours, peer, arguments.runs)
    rows = [
        Row(
            f"time to {common['target']} held-out accuracy",
            f"{middle(mine):.0f} s, {_reached(mine)}",
            f"TRL: {middle(others):.0f} s, {_reached(others)}",
            # A run of ours that did not get there is no faster than anything.
            median(other["seconds"] / own["seconds"] * own["reached"] for own, other in zip(mine, others, strict=True)),
            at_least=4.0,
            reason=SHORT_OF,
        ),
        Row(
            "one update",
            f"{middle(mine, 'update'):.1f} s",
            f"TRL: {middle(others, 'update'):.1f} s",
            ratio(others, mine, "update"),
        ),
    ]
    facts = {
        "load": load,
        "versions": versions({side.name: side.versions for side in (ours, peer)}),
        "runs": f"{arguments.runs} of each, in turns, seeds 1 to {arguments.runs}; medians. A run ends after "
        f"{common['most_updates']} updates at the latest, and TRL's once it took {PATIENCE} times as long as "
        "dapo's with the same seed; its time then stands for a longer one",
        "model": f"SmolLM2-135M, {arguments.dtype} with float32 weights and moments on both sides",
        "dapo, held-out accuracy by update": "; ".join(_course(figures) for figures in mine),
        "TRL, held-out accuracy by update": "; ".join(_course(figures) for figures in others),
    }
    report(f"The demo's time to accuracy ({arguments.dtype})", rows, facts, write=not arguments.tiny)


def _rounds(ours: Contestant, peer: Contestant, runs: int) -> tuple[list[Figures], list[Figures]]:
    """One run of each side with every seed."""
    mine: list[Figures] = []
    others: list[Figures] = []
    started = time.monotonic()
    for seed in range(1, runs + 1):
        mine.append(ours.run(seed=seed))
        others.append(peer.run(seed=seed, most_seconds=PATIENCE * mine[-1]["seconds"]))
        show_round(f"dapo {mine[-1]['seconds']:.0f} s, trl {others[-1]['seconds']:.0f} s", seed, runs, started)
    return mine, others


def _reached(runs: list[Figures]) -> str:
    return f"reached in {sum(figures['reached'] for figures in runs)} of {len(runs)} runs"


def _course(figures: Figures) -> str:
    return " ".join(f"{accuracy:.2f}" for accuracy in figures["accuracies"])


if __name__ == "__main__":
    serve_if_contestant({"dapo": dapo, "trl": trl})
    main()
