"""The one-line curve."""

from hypothesis import given
from hypothesis import strategies as st

from dapo.tracking.sparkline import sparkline


def test_the_scale_is_zero_to_one_for_shares():
    # eight levels of 1/8 each: 0.125 is the second, 0.5 the fifth, 1.0 the last
    assert sparkline({1: 0.0, 2: 0.125, 3: 0.5, 4: 1.0}, total=4, width=4) == "▁▂▅█"


def test_the_scale_grows_with_the_values():
    # -1 to 1: 0 lies in the middle, the fifth of eight levels
    assert sparkline({1: -1.0, 2: 0.0, 3: 1.0}, total=3, width=3) == "▁▅█"
    # 0 to 16: 8 is the middle
    assert sparkline({1: 8.0, 2: 16.0}, total=2, width=2) == "▅█"


def test_the_curve_ends_where_the_run_stands():
    assert sparkline({1: 1.0, 2: 1.0}, total=8, width=4) == "█"
    assert sparkline({1: 1.0, 2: 1.0}, total=4, width=8) == "████"


def test_a_cell_shows_the_mean_of_its_updates():
    # cells hold updates 1-2 and 3-4, means 0.5 and 0.25
    assert sparkline({1: 0.0, 2: 1.0, 3: 0.25, 4: 0.25}, total=4, width=2) == "▅▃"


def test_between_evaluations_the_last_one_stands_and_the_start_counts():
    assert sparkline({0: 0.25, 3: 0.5}, total=4, width=4) == "▃▃▅"


def test_a_resumed_run_leaves_its_unknown_past_blank():
    assert sparkline({3: 0.0, 4: 1.0}, total=4, width=4) == "  ▁█"


def test_without_values_there_is_no_curve():
    assert sparkline({}, total=4, width=4) == ""


@given(
    values=st.dictionaries(st.integers(0, 30), st.floats(-1e6, 1e6), max_size=10),
    total=st.integers(1, 20),
    width=st.integers(1, 40),
)
def test_it_never_outgrows_its_width(values, total, width):
    assert len(sparkline(values, total=total, width=width)) <= width
