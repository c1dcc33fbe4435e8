"""TRL's GRPOTrainer with DAPO's loss, as a person would set it up for the task that `dapo` learns beside it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from dapo.rewards import exact_number_score

Conversation = list[dict[str, str]]


def make_trainer(
    folder: str, problems: Sequence[dict[str, Any]], callback: TrainerCallback, **settings: Any
) -> GRPOTrainer:
    """A trainer that is ready to train.

    problems: chat messages under `prompt`, and `answer`. settings: what else is to differ from TRL's defaults.
    Nothing is logged, saved or evaluated. The learning rate is constant, as it is in `dapo`.
    """
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="trl-"),
        use_cpu=True,
        loss_type="dapo",
        epsilon_high=0.28,
        lr_scheduler_type="constant",
        num_generations=8,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **settings,
    )
    return GRPOTrainer(
        model=folder,
        reward_funcs=exact_number,
        args=config,
        train_dataset=Dataset.from_list(list(problems)),
        callbacks=[callback],
    )


def exact_number(prompts: Any, completions: Sequence[Conversation], answer: Sequence[str], **_: Any) -> list[float]:
    """The very reward of the other side, called as TRL calls rewards."""
    texts = [completion[0]["content"] for completion in completions]
    return [exact_number_score(text, gold).value for text, gold in zip(texts, answer, strict=True)]


def held_out_accuracy(
    trainer: GRPOTrainer, problems: Sequence[dict[str, Any]], answers: int, max_new_tokens: int
) -> float:
    """Share of right answers, `answers` of them drawn for each problem at temperature 1."""
    tokenizer, model = trainer.processing_class, trainer.model
    template = {"tokenize": False, "add_generation_prompt": True}
    texts = [
        tokenizer.apply_chat_template(problem["prompt"], **template) for problem in problems for _ in range(answers)
    ]
    batch = tokenizer(texts, add_special_tokens=False, padding=True, padding_side="left", return_tensors="pt")
    model.eval()  # with which activation checkpointing pauses and the cache works
    with torch.no_grad():
        written = model.generate(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            do_sample=True,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            max_new_tokens=max_new_tokens,
        )
    model.train()
    replies = tokenizer.batch_decode(written[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    golds = [problem["answer"] for problem in problems for _ in range(answers)]
    return sum(exact_number_score(text, gold).value for text, gold in zip(replies, golds, strict=True)) / len(golds)
