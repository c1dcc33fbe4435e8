"""Updating the weights: how near the trainer comes to the machine's limit, and what sharing a group's prompt saves.

The limit of an update is three times the matrix products of its forward passes, at the same numbers of tokens: one
time for the forward, two for the backward pass. They are timed alone, in the same process, in turns with the update.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from side_by_side import Contestant, Figures, Requests, serve_if_contestant, take_turns

if TYPE_CHECKING:
    from dapo.training.batch import Answer

SHORT_OF = (
    "attention, forward and backward, takes 14% of an update, and the backward's products a tenth more than forward's"
)
"""What an update spends beyond three times the forward's products, from a profile."""


def dapo(options: dict[str, Any], requests: Requests) -> None:
    """Tasks: an update on random answers, with prompts shared or each on its own; and its matrix products alone."""
    from loaded_model import forward_products, load

    from dapo.algorithms.settings import Algorithm, AlgorithmSettings
    from dapo.training.settings import TrainingSettings
    from dapo.training.update import Trainer

    model = load(options["folder"], "bfloat16")
    algorithm = Algorithm.of(AlgorithmSettings())
    settings = TrainingSettings(lr=1e-9, mini_bs=16)
    trainer = Trainer(model, settings, algorithm, temperature=1.0, max_new_tokens=options["longest"])

    def run(task: dict[str, Any]) -> Figures:
        answers = random_answers(task["groups"], task["prompt"], task["length"])
        if task["kind"] == "alone":
            # Every answer says that it is a group of its own, so that no two share a prompt.
            answers = [replace(answer, group_id=number) for number, answer in enumerate(answers)]
        if task["kind"] != "products":
            return timed(lambda: trainer.update(answers, settings.lr), answers)
        passes = [answers[start : start + settings.mini_bs] for start in range(0, len(answers), settings.mini_bs)]
        products = [forward_products(model, packed_tokens(part), task["length"] * len(part)) for part in passes]
        return timed(lambda: [product() for product in products for _ in range(3)], answers)

    run(options["warm_up"] | {"kind": "shared"})
    requests.ready("torch", "transformers", "dapo-rl")
    for task in requests:
        requests.answer(run(task))


def random_answers(groups: int, prompt: int, length: int) -> list[Answer]:
    """8 answers for each of `groups` prompts, of random tokens; prompts and answers all equally long."""
    from dapo.records import Completion, Prompt
    from dapo.training.batch import Answer

    numbers = random.Random(0)
    draw = lambda count: tuple(numbers.randrange(1000) for _ in range(count))  # noqa: E731
    answers = []
    for group in range(groups):
        row = Prompt(group, "", draw(prompt))
        for member in range(8):
            completion = Completion(draw(length), (-3.0,) * length, "", "stop")
            answers.append(Answer(group, row, completion, 1.0 if member % 2 else -1.0))
    return answers


def packed_tokens(answers: Sequence[Answer]) -> int:
    """Tokens of a pass: each group's prompt once, and each answer but for its last, which predicts nothing."""
    prompts = {answer.group_id: len(answer.prompt.tokens) for answer in answers}
    return sum(prompts.values()) + sum(len(answer.completion.tokens) - 1 for answer in answers)


def timed(work: Callable[[], object], answers: Sequence[Answer]) -> Figures:
    started = time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "tokens": sum(len(answer.completion.tokens) for answer in answers)}


def main() -> None:
    from loaded_model import bundled
    from results import Row, add_options, load_at_start, middle, rate, ratio, report, versions

    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    arguments = parser.parse_args()
    load = load_at_start()
    update = {"groups": 2, "prompt": 8, "length": 8} if arguments.tiny else {"groups": 8, "prompt": 44, "length": 128}
    one = {"groups": 1, "prompt": 32 if arguments.tiny else 512, "length": 8 if arguments.tiny else 64}
    options = {"folder": bundled(), "longest": 128, "warm_up": update}
    with Contestant(__file__, "dapo", options) as ours:
        updates, limits, shared, alone = take_turns(
            [
                (ours, {"kind": kind} | sizes)
                for kind, sizes in (("shared", update), ("products", update), ("shared", one), ("alone", one))
            ],
            arguments.runs,
        )
    answers = f"{8 * update['groups']} answers of {update['length']} tokens, prompts of {update['prompt']}"
    rows = [
        Row(
            f"{answers}: share of the limit",
            rate(updates),
            f"3 x forward's products: {rate(limits)}",
            100 * ratio(limits, updates),
            "%",
            at_least=70,
            reason=SHORT_OF,
        ),
        Row(
            f"8 answers of {one['length']} tokens to a prompt of {one['prompt']}",
            f"prompt shared: {middle(shared):.2f} s",
            f"not shared: {middle(alone):.2f} s",
            ratio(alone, shared),
            at_least=3.0,
        ),
    ]
    facts = {
        "load": load,
        "versions": versions({ours.name: ours.versions}),
        "runs": f"{arguments.runs} of each, in turns; medians",
        "model": "SmolLM2-135M, bfloat16 with float32 masters, 16 answers in a pass",
        "peak memory": f"{updates[0]['peak_bytes'] / 2**30:.1f} GiB after the first update",
    }
    report("Training", rows, facts, write=not arguments.tiny)


if __name__ == "__main__":
    serve_if_contestant({"dapo": dapo})
    main()
