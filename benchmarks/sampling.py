"""Dynamic sampling: tokens generated for each token trained on the demo, and what the two savings are worth.

Whole rounds: every generation round is a full one and is finished, whatever it brings. Savings: later rounds are as
large as the share of groups that disagreed asks for, and a round stops once the batch is full. Both learn from the
same seeds. What is counted are tokens, not seconds, so a busy machine does not matter.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

from loaded_model import QUICKSTART
from results import Row, add_options, load_at_start, middle, ratio, report, versions
from side_by_side import show_round

from dapo.config import load_config
from dapo.coordination.parts import assemble
from dapo.coordination.run import Run
from dapo.coordination.stopping import StopRequest
from dapo.sampling.dynamic_sampler import DynamicSampler
from dapo.tracking.metrics_log import read_metrics
from dapo.tracking.plain_display import PlainDisplay


@contextmanager
def whole_rounds() -> Iterator[None]:
    """Take both savings out of the sampler."""
    full = lambda sampler, counts: sampler.settings.round_limit  # noqa: E731
    with patch.object(DynamicSampler, "_round_size", full), patch.object(DynamicSampler, "_full_for_good", False):
        yield


def run(seed: int, tiny: bool) -> dict[str, Any]:
    """The demo without its held-out measurements; what it generated and trained."""
    with tempfile.TemporaryDirectory() as folder:
        flags: dict[str, Any] = {"seed": seed, "save_interval": 0, "train_devices": "cpu", "save_path": f"{folder}/run"}
        if tiny:
            flags |= {"max_steps": 1, "batch_size": 2, "n_samples": 2, "max_new_tokens": 8, "epochs": 1000}
        config = load_config(QUICKSTART, flags)
        config = replace(config, run=replace(config.run, eval_dataset_path=None, eval_interval=None))
        display = PlainDisplay(io.StringIO())
        with assemble(config, display) as parts:
            Run(parts, display, StopRequest()).train()
            generated = parts.engine.counters.sampled_tokens
        lines = read_metrics(Path(folder) / "run" / "metrics.jsonl")
    trained = sum(line["trained_tokens"] for line in lines)
    return {"wasted": generated / trained, "rounds": sum(line["dapo_gen_batches"] for line in lines)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    arguments = parser.parse_args()
    load = load_at_start()
    saving, whole = [], []
    started = time.monotonic()
    for seed in range(1, arguments.runs + 1):
        saving.append(run(seed, arguments.tiny))
        with whole_rounds():
            whole.append(run(seed, arguments.tiny))
        wasted = f"{saving[-1]['wasted']:.2f}, whole rounds {whole[-1]['wasted']:.2f}"
        show_round(f"tokens generated for each trained: {wasted}", seed, arguments.runs, started)
    row = Row(
        "tokens generated for each token trained",
        f"{middle(saving, 'wasted'):.2f}",
        f"whole rounds: {middle(whole, 'wasted'):.2f}",
        ratio(saving, whole, "wasted"),
        at_most=1.0,
    )
    facts = {
        "load": load,
        "versions": versions({"dapo": {name: version(name) for name in ("torch", "transformers", "dapo-rl")}}),
        "runs": f"{arguments.runs} of each, seeds 1 to {arguments.runs}; medians",
        "rounds in a run": f"{middle(saving, 'rounds'):.0f}, whole rounds: {middle(whole, 'rounds'):.0f}",
    }
    report("Dynamic sampling on the demo", [row], facts, write=not arguments.tiny)


if __name__ == "__main__":
    main()
