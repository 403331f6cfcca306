"""Figures with two digits: an estimate has no more than that."""

from __future__ import annotations

_UNITS = ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def two_digits(value: float) -> str:
    """``value`` without more precision than an estimate has.

    Example:
        >>> two_digits(1234.5), two_digits(0.517)
        ('1,200', '0.52')
    """
    rounded = float(f"{value:.1e}")
    if rounded >= 10 or not rounded:
        return f"{rounded:,.0f}"
    return f"{rounded:.1f}" if rounded >= 1 else f"{rounded:.2g}"


def long_time(seconds: float) -> str:
    """A length of time in one unit, of which there are at least two where possible."""
    length, unit = next((x for x in _UNITS if seconds >= 2 * x[0]), _UNITS[-1])
    return f"{two_digits(seconds / length)} {unit}"


def large_size(count: float) -> str:
    """Bytes in MB or GB, of 1000 each as makers of devices count."""
    return f"{two_digits(count / 1e9)} GB" if count >= 1e9 else f"{two_digits(count / 1e6)} MB"
