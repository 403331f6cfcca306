"""Estimate what a table will cost."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ablations.costs.speed import Speed, nominal_speed, read_finished, speed_of_runs
from ablations.costs.timing import until_the_last
from ablations.runs.options import Places, count_cores
from ablations.tables.find import find_scale, load_table, parse_seeds, select_rows
from ablations.tables.plan import make_plan
from ablations.tables.table import Cell
from experiments.records.result import Result
from transformer.config import Config
from transformer.data.prepare.estimate import preparation_cost
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters, run_flops
from transformer.formats import MISSING, duration, millions, size

# Weights and Adam's two moments, in fp32.
_WEIGHT_BYTES, _STATE_BYTES = 4, 12
# Resuming needs one checkpoint to fall back on, apart from the newest.
_MIN_CHECKPOINTS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class RowCost:
    """One run of a row: seconds are those of each device that it trains on, memory is the most that
    its process holds, None where that was not measured; ``left`` runs have no result yet.
    """

    name: str
    parameters: int
    flops: float
    seconds: float
    memory_bytes: int | None
    disk_bytes: int
    left: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Total:
    """All runs: seconds of wall-clock time until the last one ends, the longest started first, and
    seconds added up over the devices; ``seconds_left`` are of the ``runs_left`` without a result.
    """

    runs: int
    flops: float
    seconds: float
    device_seconds: float
    disk_bytes: int
    runs_left: int
    seconds_left: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """The cost of a table with ``at_once`` runs at a time on ``devices``, a run on
    ``devices_per_trial`` of them; ``plan --json`` prints these fields.

    ``settings`` says what the scale sets, ``basis`` how the speed of its ``device`` and the memory
    are known, and ``assumptions`` what dividing up devices is taken to do. ``corpus_cost`` is that
    of fetching and preparing the text, None for a small one.
    """

    table: str
    scale: str
    corpus: str
    settings: tuple[str, ...]
    seeds: tuple[int, ...]
    devices: int
    devices_per_trial: int
    at_once: int
    basis: dict[str, str]
    assumptions: tuple[str, ...]
    rows: tuple[RowCost, ...]
    total: Total
    corpus_cost: dict[str, Any] | None


def plan_table(
    table: str,
    scale: str,
    *,
    seeds: str,
    rows: str | None,
    device: str | None,
    devices: int | None,
    places: Places,
    directory: Path | None,
) -> Estimate:
    """Estimate a table on ``devices``, or on this machine as ``run`` would divide it up."""
    _check(devices, places)
    declared = load_table(table)
    chosen, numbers = select_rows(declared, rows), parse_seeds(seeds)
    mapping = find_scale(declared, scale)
    plan = make_plan(declared, mapping, chosen, numbers)
    root = directory or Path("runs") / f"{plan.table}-{plan.scale}"
    finished = read_finished(plan, root)
    configs = {row.name: plan.configs[row.name] for row in chosen}
    speed = _find_speed(device, finished, root, configs)
    ranks = places.devices_per_trial
    count = devices or ranks
    at_once = places.workers or count // ranks * places.trials_per_device
    if device is None and devices is None:
        here = places.here(plan.base.training.threads)
        gpus = {gpu for place in here for gpu in place.devices}
        if bool(gpus) == speed.is_gpu:  # else they are not of the kind whose speed is known
            count = len(gpus) or min(count_cores(), len(here) * ranks)
            at_once = len(here)
    at_once = min(len(chosen) * len(numbers), at_once)
    sharing = max(1.0, at_once * ranks / count)
    # Finished runs took as long as they took, as many at a time as there were.
    slowdown = 1.0 if speed.as_ran else sharing
    costs = tuple(_costs(configs, numbers, finished, speed, ranks / slowdown))
    cost = preparation_cost([config.data.corpus for config in configs.values()])
    return Estimate(
        table=plan.title,
        scale=plan.scale,
        corpus=plan.base.data.corpus.name,
        settings=tuple(mapping.describe(declared.base)),
        seeds=numbers,
        devices=count,
        devices_per_trial=ranks,
        at_once=at_once,
        basis=speed.basis,
        assumptions=tuple(_assumptions(ranks, slowdown)),
        rows=costs,
        total=_total(costs, len(numbers), at_once, ranks / sharing),
        corpus_cost=cost and asdict(cost),
    )


def _check(devices: int | None, places: Places) -> None:
    if devices is not None and devices < 1:
        raise InputError(f"--devices is {devices}, but must be at least 1")
    if devices is not None and places.devices_per_trial > devices:
        raise InputError(
            f"--devices-per-trial is {places.devices_per_trial}, but --devices is {devices}: "
            "raise --devices, or lower --devices-per-trial"
        )


def _find_speed(
    device: str | None, finished: Mapping[Cell, Result], root: Path, configs: Mapping[str, Config]
) -> Speed:
    """The speed of the GPU if one is named, else of finished runs, else as measured here."""
    if device is not None:
        return nominal_speed(device, configs)
    if finished:
        return speed_of_runs(finished, root)
    from ablations.costs.measure import measured_speed  # which imports torch

    return measured_speed(configs)


def checkpoint_bytes(config: Config) -> int:
    """Disk space of a run: the checkpoints it keeps and the best one's weights."""
    training = config.training
    kept = max(_MIN_CHECKPOINTS, training.average_checkpoints, training.also_average or 0)
    return count_parameters(config.model) * (_STATE_BYTES * kept + _WEIGHT_BYTES)


def _assumptions(devices_per_trial: int, sharing: float) -> Iterator[str]:
    if devices_per_trial > 1:
        yield f"{devices_per_trial} devices are assumed to be that many times as fast"
    if sharing > 1:
        yield f"{sharing:.3g} runs at a time on a device are assumed to share its speed"


def _costs(
    configs: Mapping[str, Config],
    seeds: Sequence[int],
    finished: Collection[Cell],
    speed: Speed,
    devices: float,
) -> Iterator[RowCost]:
    for name, config in configs.items():
        yield RowCost(
            name=name,
            parameters=count_parameters(config.model),
            flops=run_flops(config),
            seconds=speed.seconds(config, devices),
            memory_bytes=speed.memory.get(name),
            disk_bytes=checkpoint_bytes(config),
            left=sum(Cell(name, seed) not in finished for seed in seeds),
        )


def _total(rows: Sequence[RowCost], seeds: int, at_once: int, share: float) -> Total:
    """All runs, each on a ``share`` of the devices."""

    def last(counts: Sequence[int]) -> float:
        waiting = [row.seconds for row, n in zip(rows, counts, strict=True) for _ in range(n)]
        return until_the_last([], sorted(waiting, reverse=True), at_once)

    left = [row.left for row in rows]
    return Total(
        runs=seeds * len(rows),
        flops=seeds * sum(row.flops for row in rows),
        seconds=last([seeds] * len(rows)),
        device_seconds=seeds * sum(row.seconds for row in rows) * share,
        disk_bytes=seeds * sum(row.disk_bytes for row in rows),
        runs_left=sum(left),
        seconds_left=last(left),
    )


def describe(estimate: Estimate) -> Iterator[str]:
    """The lines of an estimate for a terminal, its assumptions first."""
    rows, seeds, total = len(estimate.rows), len(estimate.seeds), estimate.total
    yield f"{estimate.table} at scale {estimate.scale} on {estimate.corpus}"
    yield from estimate.settings
    yield (
        f"{rows} row{'s' * (rows > 1)} by {seeds} seed{'s' * (seeds > 1)}, {total.runs} runs, "
        f"{estimate.at_once} at a time; devices: {estimate.devices} of {estimate.basis['device']}"
    )
    yield f"based on {estimate.basis['text']}"
    yield ""
    width = max(len(row.name) for row in estimate.rows)
    head = ("params", "FLOPs", "a run", "memory", "disk")
    yield f"{'row':{width}}" + "".join(f" {name:>13}" for name in head)
    for row in estimate.rows:
        cells = (
            f"{millions(row.parameters)}M",
            f"{row.flops:.1e}",
            duration(row.seconds),
            MISSING if row.memory_bytes is None else size(row.memory_bytes),
            size(row.disk_bytes),
        )
        yield f"{row.name:{width}}" + "".join(f" {cell:>13}" for cell in cells)
    yield ""
    yield (
        f"total: {total.flops:.1e} FLOPs, {duration(total.seconds)} of wall-clock time, "
        f"{total.device_seconds / 3_600:,.1f} device hours"
    )
    if total.runs_left < total.runs:
        yield (
            f"done: {total.runs - total.runs_left} runs; left: {total.runs_left}, "
            f"{duration(total.seconds_left)} of wall-clock time"
        )
    disk = f"disk: {size(total.disk_bytes)} of checkpoints"
    if (corpus := estimate.corpus_cost) is not None:
        disk += (
            f"; the text {size(corpus['disk_bytes'])}, of which {size(corpus['fetched_bytes'])} "
            f"are still to be downloaded, and {duration(corpus['seconds'])} of one core to prepare "
            "it"
        )
    yield disk
    yield f"memory: {estimate.basis['memory']}"
    yield from estimate.assumptions
