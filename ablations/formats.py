"""How figures are written, the same in displays and in all forms of a report."""

from __future__ import annotations

from math import isfinite

from ablations.report.estimates import Estimate

MISSING = "\u2013"  # an en dash


def duration(seconds: float | None) -> str:
    """A length of time, as precise as a reader needs.

    Example:
        >>> duration(185.2)
        '3 min 05 s'
    """
    if seconds is None:
        return MISSING
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def number(value: float | None, digits: int) -> str:
    """A figure with ``digits`` decimals, or with three digits in all where it is very large."""
    if value is None:
        return MISSING
    if not isfinite(value):
        return "∞" if value > 0 else "not a number"
    return f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:.3g}"


def difference(value: float | None, digits: int) -> str:
    """A signed figure, with a real minus; what rounds to nothing has no sign."""
    text = number(value, digits)
    if value is None or not isfinite(value):
        return text
    if not float(text):
        return text.removeprefix("-")
    return f"\u2212{text[1:]}" if value < 0 else f"+{text}"


def estimate(value: Estimate | None, digits: int) -> str:
    """A mean with its spread, where there is one: ``82.1 ± 0.3``."""
    mean = number(value.mean if value else None, digits)
    if value is None or value.deviation is None:
        return mean
    return f"{mean} ± {number(value.deviation, digits)}"


def count(value: float) -> str:
    """A whole number with its thousands set apart."""
    return f"{value:,.0f}"


def millions(parameters: int) -> str:
    """Parameters in millions, to three digits: ``65.1``, ``0.562``.

    Example:
        >>> millions(65_082_368)
        '65.1'
    """
    value = parameters / 1e6
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def steps(value: int) -> str:
    """A number of steps as the paper writes it, ``100K``, where it is round."""
    return f"{value // 1000}K" if value >= 10_000 and value % 1000 == 0 else f"{value:,}"
