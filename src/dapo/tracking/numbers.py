"""How numbers are written for people: fixed digits, thousands, percents, durations. ASCII only."""

from __future__ import annotations

_THOUSANDS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def three_digits(value: float) -> str:
    """0.4123 -> `0.412`"""
    return f"{value:.3f}"


def one_digit(value: float) -> str:
    """12.34 -> `12.3`"""
    return f"{value:,.1f}"


def scientific(value: float) -> str:
    """0.000001 -> `1.00e-06`; for numbers of unknown size such as a learning rate."""
    return f"{value:.2e}"


def significant(value: float) -> str:
    """2.3 -> `2.30`, 257.8 -> `258`, 0.01234 -> `0.0123`, 0.000001 -> `1.00e-06`: three digits of any size."""
    return f"{value:#.3g}".rstrip(".")


def count(value: float) -> str:
    """1234567 -> `1,234,567`"""
    return f"{value:,.0f}"


def compact(value: float) -> str:
    """Three digits and a suffix: 812 -> `812`, 12345 -> `12.3k`, 999_960 -> `1.0M`."""
    for size, suffix in _THOUSANDS:
        # The border is where rounding would already show 1000 of the smaller unit.
        if abs(value) >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.0f}{suffix}" if abs(scaled) >= 99.95 else f"{scaled:.1f}{suffix}"
    return f"{value:.0f}"


def percent(share: float) -> str:
    """0.0312 -> `3.1%`"""
    return f"{100 * share:.1f}%"


def duration(seconds: float) -> str:
    """6.24 -> `6.2 s`, 42 -> `42 s`, 125 -> `2 min 05 s`, 3725 -> `1 h 02 min`, 2 days and more -> `2 d 03 h`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"


def rough(seconds: float) -> str:
    """An estimate, steady enough to be read: 43 -> `40 s`, 125 -> `2 min`, 3725 -> `62 min`, then as `duration`."""
    if seconds < 90:
        return f"{max(round(seconds / 10), 1) * 10} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return duration(seconds)
