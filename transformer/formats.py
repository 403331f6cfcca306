"""Format numbers for people."""

from __future__ import annotations

from math import inf, isfinite

MISSING = "\u2013"  # an en dash


def duration(seconds: float | None) -> str:
    """A length of time in its two largest units: ``3 min 05 s``."""
    if seconds is None or not isfinite(seconds):
        return MISSING
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    minutes = whole // 60
    if minutes < 2 * 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{minutes // 1440} days {minutes % 1440 // 60:02} h"


def size(count: float) -> str:
    """Bytes in decimal units, as makers of disks and GPUs count: ``1.7 GB``, ``657 MB``."""
    value, unit = (count / 1e9, "GB") if count >= 1e9 else (count / 1e6, "MB")
    return f"{value:.1f} {unit}" if value < 10 else f"{value:,.0f} {unit}"


def number(value: float | None, digits: int) -> str:
    """A number with ``digits`` decimals, or with three significant digits from 1,000 on."""
    if value is None:
        return MISSING
    if not isfinite(value):
        return {inf: "∞", -inf: "\u2212∞"}.get(value, "not a number")
    return f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:.3g}"


def difference(value: float | None, digits: int) -> str:
    """A signed number with a typographic minus; what rounds to zero has no sign."""
    text = number(value, digits)
    if value is None or not isfinite(value):
        return text
    if not float(text):
        return text.removeprefix("-")
    return f"\u2212{text[1:]}" if value < 0 else f"+{text}"


def count(value: float) -> str:
    """A whole number with thousands separators."""
    return f"{value:,.0f}"


def counted(number: int, noun: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def millions(parameters: int) -> str:
    """Parameters in millions, to three digits: ``65.1``, ``0.562``."""
    value = parameters / 1e6
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def flops(value: float | None) -> str:
    """Floating-point operations, ``3.3e18``; empty if they are not known."""
    return "" if value is None else f"{value:.2g}".replace("e+", "e")


def steps(value: int) -> str:
    """A number of steps, round ones as the paper writes them: ``100K``."""
    return f"{value // 1000}K" if value >= 10_000 and value % 1000 == 0 else f"{value:,}"
