"""Tables of normal numbers in which no row differs from another, judged as a report does."""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from ablations.report.pooling import dunnett, pool
from ablations.report.statistics import estimate, paired_difference


@functools.cache
def simulate(
    rows: int, seeds: int, *, gaps: bool = False, spreads: tuple[float, ...] = ()
) -> dict[str, float]:
    """Shares in percent over tables in which no row differs from the base, and seeds matter.

    Args:
        gaps: whether a quarter of the runs is missing
        spreads: standard deviations of as many rows or more, the base's first; all 1 if empty
    """
    random = np.random.default_rng(rows * 100 + seeds)
    kept = random.random((rows, seeds)) >= 0.25 * gaps
    scales = np.reshape(spreads[:rows] or [1.0] * rows, (rows, 1))
    held: dict[str, list[bool]] = defaultdict(list)
    for _ in range(max(4_000, 20_000 // rows)):
        figures = scales * random.standard_normal((rows, seeds)) + 2 * random.standard_normal(seeds)
        _judge(
            [
                {seed: x for seed, x in enumerate(row) if kept[index, seed]}
                for index, row in enumerate(figures.tolist())
            ],
            held,
        )
    return {name: percent(found) for name, found in held.items()}


def _judge(table: list[dict[int, float]], held: dict[str, list[bool]]) -> None:
    """Which claims about a table hold in which all true means and differences are 0."""
    found = pool({str(index): row for index, row in enumerate(table)})
    assert found is not None
    always = dataclasses.replace(found, p_equal=1.0)
    held["rejects"].append(not found.is_usable)
    for row in table:
        mean = estimate(list(row.values()))
        if mean and mean.interval:
            held["mean"].append(mean.interval[0] <= 0 <= mean.interval[1])
    differs, seeds = False, tuple(frozenset(row.keys() & table[0].keys()) for row in table[1:])
    critical = dunnett(tuple(filter(None, seeds)), found.freedom)
    for index, row in enumerate(table[1:]):
        own = paired_difference(row, table[0])
        if own is None:
            continue
        pooled, chosen = always.apply(own), found.apply(own)
        kinds = {"own": own, "pooled": pooled, "chosen": chosen}
        if index == 0:
            kinds["second row"] = chosen
        for name, kind in kinds.items():
            if kind.within_noise is not None:
                held[name].append(kind.within_noise)
        if chosen.interval:
            held["above"].append(chosen.interval[0] > 0)
            held["below"].append(chosen.interval[1] < 0)
        differs |= abs(pooled.mean) > critical * (pooled.standard_error or 0.0)
    held["family"].append(differs)
    held["family chosen"].append(differs and found.is_usable)


def percent(held: Iterable[bool]) -> float:
    """The share that holds."""
    found = list(held)
    return 100 * sum(found) / len(found)
