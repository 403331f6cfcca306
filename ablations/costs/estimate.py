"""``ablations plan``: estimate what a table will cost, for people and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablations.costs.devices import checkpoint_bytes
from ablations.costs.timing import Speed, find_speed, finished_cells, until_the_last
from ablations.runner.machine import Slot, count_cores, slots
from ablations.tables.find import find_scale, load_table, parse_seeds, select_rows
from ablations.tables.plan import Plan, make_plan
from ablations.tables.table import Cell
from transformer.corpus import Corpus
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters, run_flops
from transformer.formats import MISSING, duration, millions, size

if TYPE_CHECKING:
    from transformer.data.prepare.estimate import Cost


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
class Estimate:
    """What a table costs with ``at_once`` runs at a time on ``devices``, a run on
    ``devices_per_trial`` of them.

    ``scale`` says what the scale sets; ``corpus`` is what it costs to fetch and prepare the text,
    None for a small one.
    """

    plan: Plan
    scale: tuple[str, ...]
    seeds: tuple[int, ...]
    devices: int
    devices_per_trial: int
    at_once: int
    speed: Speed
    rows: tuple[RowCost, ...]
    corpus: Cost | None

    @property
    def sharing(self) -> float:
        """How many runs share a device, at least one."""
        return _sharing(self.devices, self.devices_per_trial, self.at_once)

    @property
    def runs(self) -> int:
        """The number of runs in all."""
        return len(self.rows) * len(self.seeds)

    @property
    def flops(self) -> float:
        """FLOPs of all runs."""
        return len(self.seeds) * sum(row.flops for row in self.rows)

    @property
    def device_seconds(self) -> float:
        """Seconds of all runs, added up over the devices."""
        seconds = sum(row.seconds for row in self.rows)
        return len(self.seeds) * seconds * self.devices_per_trial / self.sharing

    @property
    def seconds(self) -> float:
        """Wall-clock seconds until the last run ends, the longest runs started first."""
        return self._seconds([len(self.seeds)] * len(self.rows))

    @property
    def seconds_left(self) -> float:
        """The same of the runs that have no result yet."""
        return self._seconds([row.left for row in self.rows])

    def _seconds(self, counts: Sequence[int]) -> float:
        costs = zip(self.rows, counts, strict=True)
        waiting = [row.seconds for row, count in costs for _ in range(count)]
        return until_the_last([], sorted(waiting, reverse=True), self.at_once)

    @property
    def runs_left(self) -> int:
        """The number of runs that have no result yet."""
        return sum(row.left for row in self.rows)

    @property
    def disk_bytes(self) -> int:
        """Disk space of all runs, without the corpus."""
        return len(self.seeds) * sum(row.disk_bytes for row in self.rows)

    @property
    def too_large(self) -> list[str]:
        """The rows that do not fit into the memory of a device, if that is known."""
        memory = self.speed.device.memory_bytes
        if memory is None:
            return []
        bound = memory / math.ceil(self.sharing)
        return [row.name for row in self.rows if (row.memory_bytes or 0) > bound]


def _sharing(devices: int, devices_per_trial: int, at_once: int) -> float:
    return max(1.0, at_once * devices_per_trial / devices)


def plan_table(
    table: str,
    scale: str,
    *,
    seeds: str,
    rows: str | None,
    device: str | None,
    devices: int | None,
    workers: int | None,
    devices_per_trial: int,
    trials_per_device: int,
    directory: Path | None,
) -> Estimate:
    """Estimate a table on ``devices``, or on this machine as ``run`` would divide it up.

    Raises:
        InputError: if an argument is not usable.
    """
    declared = load_table(table)
    chosen, numbers = select_rows(declared, rows), parse_seeds(seeds)
    mapping = find_scale(declared, scale)
    plan = make_plan(declared, mapping, chosen, numbers)
    here: tuple[Slot, ...] = ()
    if device is None and devices is None:
        here = slots(
            workers,
            devices_per_trial=devices_per_trial,
            trials_per_device=trials_per_device,
            threads=plan.base.training.threads or 1,
        )
    count = _check(devices, workers, devices_per_trial, trials_per_device)
    at_once = workers or count // devices_per_trial * trials_per_device
    configs = {row.name: plan.configs[row.name] for row in chosen}
    root = directory or Path("runs") / f"{plan.table}-{plan.scale}"
    speed = find_speed(plan, configs, root, device)
    if here and bool(here[0].devices) == speed.device.gpu:
        gpus = {gpu for slot in here for gpu in slot.devices}
        count = len(gpus) or min(count_cores(), len(here) * devices_per_trial)
        at_once = len(here)
    at_once = min(len(chosen) * len(numbers), at_once)
    # Times are taken to be proportional to the devices, or the share of one, that a run has;
    # those of finished runs are as long as they were.
    shared = 1.0 if speed.as_ran else _sharing(count, devices_per_trial, at_once)
    share = devices_per_trial / shared
    done = finished_cells(plan, root)
    return Estimate(
        plan=plan,
        scale=tuple(mapping.describe(declared.base)),
        seeds=numbers,
        devices=count,
        devices_per_trial=devices_per_trial,
        at_once=at_once,
        speed=speed,
        rows=tuple(
            RowCost(
                name=name,
                parameters=count_parameters(config.model),
                flops=run_flops(config),
                seconds=speed.seconds(config, share),
                memory_bytes=speed.memory.get(name),
                disk_bytes=checkpoint_bytes(config),
                left=sum(Cell(name, seed) not in done for seed in numbers),
            )
            for name, config in configs.items()
        ),
        corpus=_corpus_cost(plan.base.data.corpus),
    )


def _corpus_cost(corpus: Corpus) -> Cost | None:
    if corpus.pairs is None:
        return None
    # It imports rich and the downloads, which `plan` of a small corpus does not wait for.
    from transformer.data.prepare.estimate import preparation_cost

    return preparation_cost(corpus, workers=1)


def _check(
    devices: int | None, workers: int | None, devices_per_trial: int, trials_per_device: int
) -> int:
    """Check the options that divide up devices; the number of devices."""
    for option, value in (
        ("--devices", devices),
        ("--workers", workers),
        ("--devices-per-trial", devices_per_trial),
        ("--trials-per-device", trials_per_device),
    ):
        if value is not None and value < 1:
            raise InputError(f"{option} is {value}, but must be at least 1")
    count = devices or devices_per_trial
    if devices_per_trial > count:
        raise InputError(
            f"--devices-per-trial is {devices_per_trial}, but --devices is {count}: "
            "raise --devices, or lower --devices-per-trial"
        )
    return count


def describe(estimate: Estimate) -> Iterator[str]:
    """The lines of an estimate for a terminal, its assumptions first."""
    rows, seeds, device = len(estimate.rows), len(estimate.seeds), estimate.speed.device
    plan = estimate.plan
    yield f"{plan.title} at scale {plan.scale} on {plan.base.data.corpus.name}"
    yield from estimate.scale
    yield (
        f"{rows} row{'s' * (rows > 1)} by {seeds} seed{'s' * (seeds > 1)}, {estimate.runs} runs, "
        f"{estimate.at_once} at a time; devices: {estimate.devices} of {device.name}"
    )
    yield f"based on {estimate.speed.source}"
    yield ""
    width = max(len(row.name) for row in estimate.rows)
    head = ("params", "FLOPs", "a run", "memory", "disk")
    yield f"{'row':{width}}" + "".join(f"{name:>14}" for name in head)
    for row in estimate.rows:
        cells = (
            f"{millions(row.parameters)}M",
            f"{row.flops:.1e}",
            duration(row.seconds),
            MISSING if row.memory_bytes is None else size(row.memory_bytes),
            size(row.disk_bytes),
        )
        yield f"{row.name:{width}}" + "".join(f"{cell:>14}" for cell in cells)
    yield ""
    yield (
        f"total: {estimate.flops:.1e} FLOPs, {duration(estimate.seconds)} of wall-clock time, "
        f"{estimate.device_seconds / 3_600:,.1f} device hours"
    )
    if estimate.runs_left < estimate.runs:
        yield (
            f"done: {estimate.runs - estimate.runs_left} runs; left: {estimate.runs_left}, "
            f"{duration(estimate.seconds_left)} of wall-clock time"
        )
    disk = f"disk: {size(estimate.disk_bytes)} of checkpoints"
    if (corpus := estimate.corpus) is not None:
        disk += (
            f"; the corpus {size(corpus.disk_bytes)}, of which {size(corpus.fetched_bytes)} are "
            f"still to be downloaded, and {duration(corpus.seconds)} of one core to prepare it"
        )
    yield disk
    if any(row.memory_bytes is not None for row in estimate.rows):
        what = "reserved on the GPU" if device.gpu else "resident"
        more = "" if estimate.speed.as_ran else ", before it scores"
        yield f"memory: the most that a run's process held{more}, {what}, where it was measured"
    else:
        yield "memory: not measured; weights, gradients and moments take 16 bytes a parameter"
    if estimate.devices_per_trial > 1:
        yield f"{estimate.devices_per_trial} devices are assumed to be that many times as fast"
    if estimate.sharing > 1 and not estimate.speed.as_ran:
        yield f"{estimate.sharing:.3g} runs at a time on a device are assumed to share its speed"
    if estimate.too_large:
        yield (
            f"too large for the memory of one {device.name}: {', '.join(estimate.too_large)}; "
            f"{'lower --trials-per-device or ' * (estimate.sharing > 1)}raise --devices-per-trial"
        )


def to_json(estimate: Estimate) -> dict[str, Any]:
    """The estimate for a program, under keys that stay; times in seconds, sizes in bytes.

    ``table`` (title), ``scale``, ``corpus``, ``seeds``, ``devices``, ``devices_per_trial``,
    ``at_once`` (runs at a time), ``basis`` (``text``, ``device``, ``precision``), ``rows`` (each
    ``name``, ``parameters``, how many runs are ``left``, and for one run ``flops``, ``seconds``,
    ``memory_bytes`` of its process, null if not measured, ``disk_bytes``), ``total`` (``runs``,
    ``flops``, ``seconds`` by the clock, ``device_seconds``, ``disk_bytes``, ``runs_left`` without a
    result, and their ``seconds_left``), ``corpus_cost`` (``fetched_bytes``, ``disk_bytes``,
    ``seconds``; null for a small one) and ``too_large`` (names of rows that do not fit).
    """
    device = estimate.speed.device

    def pick(source: object, *names: str) -> dict[str, Any]:
        return {name: getattr(source, name) for name in names}

    return {
        "table": estimate.plan.title,
        "scale": estimate.plan.scale,
        "corpus": estimate.plan.base.data.corpus.name,
        "seeds": list(estimate.seeds),
        **pick(estimate, "devices", "devices_per_trial", "at_once"),
        "basis": {
            "text": estimate.speed.source,
            "device": device.name,
            "precision": "bf16" if device.bf16 else "fp32",
        },
        "rows": [asdict(row) for row in estimate.rows],
        "total": pick(
            estimate,
            *("runs", "flops", "seconds", "device_seconds", "disk_bytes"),
            *("runs_left", "seconds_left"),
        ),
        "corpus_cost": estimate.corpus
        and pick(estimate.corpus, "fetched_bytes", "disk_bytes", "seconds"),
        "too_large": estimate.too_large,
    }
