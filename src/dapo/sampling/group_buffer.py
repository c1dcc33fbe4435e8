"""Whole groups that wait to be trained, oldest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

G = TypeVar("G")


@dataclass(frozen=True)
class Buffered(Generic[G]):
    """A kept group and the weights version that wrote it."""

    group: G
    version: int


class GroupBuffer(Generic[G]):
    """First in, first out."""

    def __init__(self, kept: Sequence[Buffered[G]] = ()) -> None:
        self.kept = list(kept)

    def __len__(self) -> int:
        return len(self.kept)

    def keep(self, group: G, version: int = 0) -> None:
        self.kept.append(Buffered(group, version))

    def take(self, count: int) -> list[G]:
        """Remove and return the oldest groups, at most `count`."""
        taken, self.kept = self.kept[:count], self.kept[count:]
        return [buffered.group for buffered in taken]

    def drop_older_than(self, version: int) -> list[G]:
        """Remove and return the groups that weights before `version` wrote."""
        stale = [buffered.group for buffered in self.kept if buffered.version < version]
        self.kept = [buffered for buffered in self.kept if buffered.version >= version]
        return stale
