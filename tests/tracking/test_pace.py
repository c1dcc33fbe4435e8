"""Remaining time."""

import pytest

from dapo.tracking.pace import Pace


def pace_of(*seconds):
    pace, now = Pace(), 100.0
    pace.begin(now)
    for duration in seconds:
        now += duration
        pace.update_done(now)
    return pace, now


def test_nothing_is_promised_before_the_first_update():
    pace, now = pace_of()
    assert pace.remaining(now + 5, 10) is None


def test_the_current_update_counts_for_what_is_left_of_it():
    pace, now = pace_of(8, 12)
    # average 10, of which 4 are over, and two more updates: 6 + 20
    assert pace.remaining(now + 4, 3) == pytest.approx(26)


def test_a_long_search_for_groups_raises_the_estimate_while_it_lasts():
    pace, now = pace_of(10, 10)
    # (10 + 10 + 40) / 3 = 20 per update; the current one is overdue, two more follow
    assert pace.remaining(now + 40, 3) == pytest.approx(40)


def test_only_the_latest_updates_count():
    pace, now = pace_of(*[1000.0] * 5, *[2.0] * 32)
    assert pace.remaining(now, 10) == pytest.approx(20)


def test_nothing_is_left_after_the_last_update():
    pace, now = pace_of(10)
    assert pace.remaining(now + 3, 0) == 0
