"""What to say when every answer so far got the same reward: mostly the reward reads something else than is there."""

from __future__ import annotations

from collections.abc import Sequence

from dapo.records import Group

_SHOWN = 60
"""Characters of a reference and of an answer's end that a message shows."""


def alike(groups: Sequence[Group]) -> str:
    """An example to compare by eye when all answers of these groups have one reward; empty when they differ."""
    rewards = {reward for group in groups for reward in group.rewards}
    if len(rewards) != 1:
        return ""
    group = groups[0]
    reference, answer = repr(group.prompt.answer), repr(group.completions[0].text[-_SHOWN:])
    if len(reference) > 2 * _SHOWN:
        reference = f"{reference[:_SHOWN]} ... {reference[-_SHOWN:]}"
    return (
        f"every reward so far is {rewards.pop():g}: compare by eye a reference, {reference}, "
        f"with the end of an answer to it, {answer}"
    )
