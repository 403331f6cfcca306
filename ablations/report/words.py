"""Settings, scores and sizes as text."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from ablations.report.statistics import MAX_SEEDS, Estimate, required_seeds
from ablations.tables.changes import COLUMNS, Value
from transformer import formats
from transformer.variant import class_name

# Marks a difference that is within noise.
NOISE = "~"


def label(name: str) -> str:
    """The name of a setting in the table: Table 3's, if it has it."""
    return COLUMNS.get(name, name.replace("_", " "))


def setting(name: str, value: Value) -> str:
    """The value of a setting."""
    if isinstance(value, int) and name == "max_steps":
        return formats.steps(value)
    if name == "model":
        return class_name(str(value)) if value else "the paper's"
    if isinstance(value, float):
        return str(float(f"{value:.4g}"))
    return "none" if value is None else str(value)


def mean(value: Estimate | None, digits: int) -> str:
    """A mean with its standard deviation, if there is one: ``82.1 ± 0.3``."""
    text = formats.number(value.mean if value else None, digits)
    if value is None or value.deviation is None:
        return text
    return f"{text} ± {formats.number(value.deviation, digits)}"


def interval(value: Estimate | None, digits: int, *, signed: bool = False) -> str:
    """The 95 % interval of a mean, ``81.2 to 82.3``, or why there is none."""
    if value is None:
        return formats.MISSING
    if value.interval is None:
        return "one seed" if value.count == 1 else "not finite"
    write = formats.difference if signed else formats.number
    return " to ".join(write(end, digits) for end in value.interval)


def needed(value: Estimate) -> str:
    """About how many seeds a test needs, ``14`` or ``more than 100``."""
    count = required_seeds(value)
    return f"more than {MAX_SEEDS}" if count is None else str(count)


def flops(values: Iterable[float | None]) -> str:
    """The mean of the FLOPs that are known: ``3.3e18``; empty without any."""
    known = [value for value in values if value is not None]
    return f"{fmean(known):.2g}".replace("e+", "e") if known else ""
