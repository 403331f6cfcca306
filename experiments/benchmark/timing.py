"""Timing several things in turn, and the rows of the printed table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from tqdm import tqdm

Item = TypeVar("Item")
# What is measured, our figure, that of the plain code, and their ratio; the last may be left out.
Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median over the turns, and its quartiles."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio_of(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """``above / below``, turn by turn."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    if len(ratios) == 1:
        return Ratio(ratios[0], ratios[0], ratios[0])
    low, median, high = statistics.quantiles(ratios, n=4)
    return Ratio(median, low, high)


def in_turn(
    items: Collection[Item], *functions: Callable[[Item], object], device: torch.device
) -> list[list[float]]:
    """Seconds that each function takes for each item, called one after another item by item."""
    times: list[list[float]] = [[] for _ in functions]
    for item in tqdm(items, disable=None, leave=False):  # shown on a terminal only
        for function, seconds in zip(functions, times, strict=True):
            wait_for(device)
            start = time.perf_counter()
            function(item)
            wait_for(device)
            seconds.append(time.perf_counter() - start)
    return times


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
