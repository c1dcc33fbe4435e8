"""Passes: answers packed back to back behind one shared copy of their prompt, with nothing in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dapo.algorithms.losses import token_weight
from dapo.algorithms.policy_loss import ResponseTokens
from dapo.algorithms.settings import Algorithm
from dapo.models.packed_attention import Family, PackedAttention
from dapo.training.batch import Answer


@dataclass(frozen=True)
class PackedPass:
    """What one forward pass takes, and which of its states predict which tokens.

    T packed tokens, of which no answer's last is one: nothing is predicted from it. R response tokens.
    """

    token_T: Tensor
    packing: PackedAttention
    predictor_R: Tensor
    """int64, the packed token whose state predicts each response token: the one before it, and the prompt's
    last for an answer's first."""
    target_R: Tensor
    """int64, the response tokens themselves."""
    response: ResponseTokens


def pack(
    answers: Sequence[Answer],
    algorithm: Algorithm,
    horizon: int,
    attention: Callable[[Sequence[Family]], PackedAttention],
) -> PackedPass:
    """Pack answers of any groups. Answers that follow each other and share a group share its prompt.

    horizon: max_new_tokens, for aggregations over a fixed length. attention: what the model computes families by; the
    pass is made on its device. Raises ValueError for a group with two prompts.
    """
    tokens: list[int] = []
    predictors: list[Tensor] = []
    families: list[Family] = []
    for members in _by_group(answers):
        prompt = members[0].prompt.tokens
        tokens.extend(prompt)
        last_of_prompt = len(tokens) - 1
        for answer in members:
            inputs = answer.completion.tokens[:-1]
            start = len(tokens)
            tokens.extend(inputs)
            predictors.append(torch.cat([torch.tensor([last_of_prompt]), torch.arange(start, start + len(inputs))]))
        families.append(Family(len(prompt), [len(answer.completion.tokens) - 1 for answer in members]))
    packing = attention(families)
    device = packing.position_T.device
    return PackedPass(
        token_T=torch.tensor(tokens, device=device),
        packing=packing,
        predictor_R=torch.cat(predictors).to(device),
        target_R=torch.tensor([token for answer in answers for token in answer.completion.tokens], device=device),
        response=_response(answers, algorithm, horizon, device),
    )


def _by_group(answers: Sequence[Answer]) -> Iterator[list[Answer]]:
    members: list[Answer] = []
    for answer in answers:
        if members and members[-1].group_id != answer.group_id:
            yield members
            members = []
        if members and members[-1].prompt.tokens != answer.prompt.tokens:
            raise ValueError(f"group {answer.group_id} has two prompts, but its answers share one")
        members.append(answer)
    yield members


def _response(answers: Sequence[Answer], algorithm: Algorithm, horizon: int, device: torch.device) -> ResponseTokens:
    length = torch.tensor([len(answer.completion.tokens) for answer in answers])
    weight = torch.tensor([token_weight(n, algorithm.aggregation, horizon) for n in length.tolist()])
    advantage = torch.tensor([answer.advantage for answer in answers], dtype=torch.float32)
    old_logp = torch.tensor([logp for answer in answers for logp in answer.completion.logprobs], dtype=torch.float32)
    return ResponseTokens(
        old_logp=old_logp.to(device),
        advantage=advantage.repeat_interleave(length).to(device),
        weight=weight.repeat_interleave(length).to(device),
        sequence=torch.arange(len(answers)).repeat_interleave(length).to(device),
        answers=len(answers),
    )
