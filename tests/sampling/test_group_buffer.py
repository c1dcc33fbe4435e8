"""Whole groups that wait, oldest first."""

from __future__ import annotations

from dapo.sampling.group_buffer import Buffered, GroupBuffer


def test_first_in_is_first_out() -> None:
    buffer: GroupBuffer[str] = GroupBuffer()
    for name in "abc":
        buffer.keep(name)
    assert buffer.take(2) == ["a", "b"]
    assert len(buffer) == 1
    assert buffer.take(2) == ["c"]
    assert buffer.take(2) == []


def test_groups_older_than_a_version_leave_and_are_returned() -> None:
    buffer: GroupBuffer[str] = GroupBuffer()
    for version, name in enumerate("abcb"):
        buffer.keep(name, version)
    assert buffer.drop_older_than(2) == ["a", "b"]
    assert buffer.kept == [Buffered("c", 2), Buffered("b", 3)]
    assert buffer.drop_older_than(2) == []


def test_a_buffer_goes_on_from_what_was_kept_and_leaves_the_original_alone() -> None:
    kept = [Buffered("a", 3)]
    buffer = GroupBuffer(kept)
    buffer.keep("b", 4)
    assert buffer.kept == [Buffered("a", 3), Buffered("b", 4)]
    assert kept == [Buffered("a", 3)]
