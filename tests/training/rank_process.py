"""One rank of a real process group, run by test_ranks.py: makes each case's update and writes what came out.

python rank_process.py JOB_FOLDER RANK SIZE
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from dapo.algorithms.settings import Algorithm, AlgorithmSettings
from dapo.models.loading import load_model, load_tokenizer
from dapo.models.settings import ModelSettings
from dapo.records import Completion, Prompt
from dapo.training.batch import Answer
from dapo.training.ranks import Ranks
from dapo.training.settings import TrainingSettings
from dapo.training.update import Trainer


def run_case(case: dict, ranks: Ranks) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """The weights after one update by the case's settings, and its numbers."""
    settings = ModelSettings(ckpt=case["ckpt"], dtype=case["dtype"])
    model = load_model(case["ckpt"], load_tokenizer(case["ckpt"], settings), settings, torch.device("cpu"))
    trainer = Trainer(
        model,
        TrainingSettings(**case["settings"]),
        Algorithm.of(AlgorithmSettings(**case["algorithm"])),
        temperature=1.0,
        max_new_tokens=20,
        ranks=ranks,
    )
    answers = [
        Answer(group, Prompt(group, "", tuple(prompt)), Completion(tuple(tokens), tuple(old), "", "stop"), advantage)
        for group, prompt, tokens, old, advantage in case["answers"]
    ]
    stats = trainer.update(answers, 3e-5)
    numbers = {name: value for name, value in vars(stats).items() if isinstance(value, int | float)}
    return {name: parameter.detach() for name, parameter in model.module.named_parameters()}, numbers


def main(folder: Path, rank: int, size: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet-{size}", rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )
    for name, case in json.loads((folder / "cases.json").read_text()).items():
        torch.save(run_case(case, Ranks(dist.group.WORLD)), folder / f"{name}-{rank}-of-{size}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
