"""How far the runs under way have come, and how long the table still takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ablations.costs.timing import Timing, predict, time_left
from ablations.fleet.child import Child
from ablations.fleet.display import Running, Snapshot
from ablations.table import Cell
from transformer.config import Config


def look(
    *,
    done: int,
    failed: int,
    total: int,
    children: Sequence[Child],
    waiting: Sequence[Config],
    configs: Mapping[Cell, Config],
    known: Sequence[Timing],
    workers: int,
) -> Snapshot:
    """The present state, of which ``known`` are the runs whose time is known for sure."""
    running: list[Running] = []
    timings = list(known)
    for child in children:
        config, progress = configs[child.cell], child.progress()
        left = progress.seconds_left if progress else None
        if left is not None:
            timings.append(Timing(config, child.elapsed + left))
        elif (expected := predict(config, known)) is not None:
            left = max(0.0, expected - child.elapsed)
        running.append(Running(child.cell, progress, left))
    lefts = [run.seconds_left or 0.0 for run in running]
    return Snapshot(
        done=done,
        failed=failed,
        total=total,
        running=tuple(running),
        seconds_left=time_left(lefts, waiting, timings, workers) if timings else None,
    )
