"""The cost of a table in lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from ablations.costs.estimate import TableCost
from transformer.formats import MISSING, counted, duration, millions, size


def describe_cost(estimate: TableCost) -> Iterator[str]:
    """The lines of an estimate for a terminal."""
    runs = estimate.runs
    rows, seeds = counted(len(estimate.rows), "row"), counted(len(estimate.seeds), "seed")
    yield f"{estimate.table} at scale {estimate.scale} on {estimate.corpus}"
    yield from estimate.settings
    yield from (f"warning: {text}" for text in estimate.warnings)
    yield (
        f"{rows} by {seeds}: {runs} runs, {estimate.at_once} at a time on "
        f"{counted(estimate.devices, 'device')} ({estimate.device})"
    )
    yield f"based on {estimate.basis}"
    yield ""
    width = max(len(row.name) for row in estimate.rows)
    heads = ("params", "FLOPs", "a run", "memory", "disk")
    yield f"{'row':{width}}" + "".join(f" {head:>11}" for head in heads)
    for row in estimate.rows:
        parameters, disk = f"{millions(row.parameters)}M", size(row.disk_bytes)
        memory = MISSING if row.memory_bytes is None else size(row.memory_bytes)
        flops = f"{row.flops:.1e}" if row.flops else "="
        cells = (parameters, flops, duration(row.seconds), memory, disk)
        yield f"{row.name:{width}}" + "".join(f" {cell:>11}" for cell in cells)
    yield ""
    if (tuning := estimate.tuning) is not None:
        left = duration(tuning.seconds_left)
        yield (
            f"first, to choose the learning rates: {counted(tuning.runs, 'run')}, "
            f"{tuning.flops:.1e} FLOPs, {duration(tuning.seconds)} of wall-clock time, {left} of "
            "it left"
        )
    yield (
        f"total: {estimate.flops:.1e} FLOPs, {duration(estimate.seconds)} of wall-clock time, "
        f"{estimate.device_seconds / 3_600:,.1f} device hours"
    )
    if estimate.runs_left < runs:
        yield (
            f"runs done: {runs - estimate.runs_left}; left: {estimate.runs_left}, "
            f"{duration(estimate.seconds_left)} of wall-clock time"
        )
    if any(row.memory_bytes for row in estimate.rows):
        yield "memory: the peak of a process, in finished runs or else in the measured steps"
    else:
        yield "memory: not measured"
    yield (
        f"disk: {size(estimate.disk_bytes)} of weights in the end, at most "
        f"{size(estimate.peak_disk_bytes)} while runs are in progress; "
        f"{size(estimate.checkpoint_bytes)} with --keep-checkpoints"
    )
