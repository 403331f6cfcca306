"""Estimate what a table will cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ablations.costs.left import Left, find_left, row_of
from ablations.costs.speed import (
    SCORING_SECONDS,
    Speed,
    nominal_speed,
    open_planned,
    speed_of_runs,
    until_the_last,
)
from ablations.files import TUNING
from ablations.folder import TableFolder
from ablations.folder.table import tuned_plan
from ablations.folder.tuning import plan_candidates
from ablations.runs.options import Places, count_cores
from ablations.tables.find import Selection, load_table, scale_on
from ablations.tables.plan import Plan
from ablations.tables.trainings import trainings_of
from ablations.tables.warn import stale_rows, warnings_of
from experiments.records.run import Run
from experiments.records.source import source_warnings
from transformer.config import Config
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters, run_flops

_WEIGHT_BYTES = 4  # in fp32; Adam's two moments take as many each
_MIN_CHECKPOINTS = 2  # the newest, and one to fall back on


@dataclass(frozen=True, kw_only=True, slots=True)
class RowCost:
    """The cost of one run of a row; ``left`` of its runs have no result.

    A row that shares the training of one before it costs no FLOPs and no disk. ``disk_bytes`` are
    the weights that stay, and ``checkpoint_bytes`` what a run needs while it is trained.
    """

    name: str
    parameters: int
    flops: float
    seconds: float
    memory_bytes: int | None
    disk_bytes: int
    checkpoint_bytes: int
    left: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TableCost:
    """The cost of a table with ``at_once`` runs at a time; ``plan --json`` prints these fields.

    ``settings`` are the scale's in words; ``basis`` says what the speed of the ``device`` is based
    on. ``seconds`` are wall-clock time until the last run ends, ``seconds_left`` those for the
    ``runs_left`` without a result, and ``device_seconds`` the sum over the ``devices``.
    ``disk_bytes`` are the weights of all runs, ``peak_disk_bytes`` the most that is needed while
    runs are in progress, and ``checkpoint_bytes`` the whole checkpoints of all runs, which
    ``--keep-checkpoints`` keeps. ``tuning`` is what it costs to choose the learning rates of a
    tuned table, which the other numbers do not include.
    """

    table: str
    scale: str
    corpus: str
    settings: tuple[str, ...]
    warnings: tuple[str, ...]
    seeds: tuple[int, ...]
    device: str
    devices: int
    at_once: int
    basis: str
    rows: tuple[RowCost, ...]
    runs: int
    flops: float
    seconds: float
    device_seconds: float
    disk_bytes: int
    peak_disk_bytes: int
    checkpoint_bytes: int
    runs_left: int
    seconds_left: float
    tuning: TableCost | None = None


@dataclass(frozen=True, slots=True)
class _Devices:
    """``count`` devices, on which ``at_once`` runs of ``ranks`` processes are trained at a time."""

    count: int
    ranks: int
    at_once: int

    @property
    def runs_on_each(self) -> float:
        """How many runs share a device, 1 if they do not."""
        return max(1.0, self.at_once * self.ranks / self.count)

    def of_run(self, speed: Speed) -> float:
        """The devices of one run; the times of finished runs already include what they shared."""
        return self.ranks if speed.as_ran else self.ranks / self.runs_on_each


def plan_table(
    table: str,
    selection: Selection,
    *,
    device: str | None,
    devices: int | None,
    places: Places,
    text: str | None = None,
) -> TableCost:
    """Estimate a table on ``devices``, or on this machine as ``run`` would use it.

    Args:
        text: the user's own text to train on, as ``files:FOLDER``
    """
    declared = load_table(table)
    scale = scale_on(declared, selection.scale, text)
    plan, root = selection.plan(declared, scale)
    settings = tuple(scale.describe(declared.base))

    def estimate(plan: Plan, root: Path) -> TableCost:
        return _estimate(plan, root, settings, device, devices, places)

    if plan.tune is None:
        return estimate(plan, root)
    tuning = estimate(plan_candidates(plan), root / TUNING)
    tuned, seeds = tuned_plan(plan, root), {row.name: row.seeds for row in plan.rows}
    # Rows whose learning rate is not chosen yet will cost the same.
    rows = tuple(replace(row, seeds=seeds[row.name]) for row in tuned.rows)
    return replace(estimate(replace(tuned, rows=rows), root), tuning=tuning)


def _estimate(
    plan: Plan,
    root: Path,
    settings: tuple[str, ...],
    device: str | None,
    devices: int | None,
    places: Places,
) -> TableCost:
    """Estimate one plan, whose runs are in ``root``."""
    used = _find_devices(plan, device, devices, places)
    folder = open_planned(plan, root)
    runs = [] if folder is None else folder.look()
    configs = {row.name: row.configure(plan.base) for row in plan.rows if row.seeds}
    seeds = tuple(sorted({seed for row in plan.rows for seed in row.seeds}))
    finished = [run for run in runs if run.has_ended and run.result]
    speed = _find_speed(device, finished, folder, configs)
    work = find_left(configs, seeds, folder, {run.name for run in runs if run.has_ended})
    warnings = (
        *warnings_of(plan, speed.devices),
        *stale_rows(runs),
        *source_warnings(runs),
        *work.warnings,
    )
    rows = _cost_rows(configs, speed, used.of_run(speed), work)
    left = _seconds_left(configs, speed, used.of_run(speed), work)
    each = [row.seconds for row in rows] * len(seeds)
    disk_bytes = len(seeds) * sum(row.disk_bytes for row in rows)
    return TableCost(
        table=plan.title,
        scale=plan.scale,
        corpus=plan.base.data.corpus.name,
        settings=settings,
        warnings=warnings,
        seeds=seeds,
        device=speed.device,
        devices=used.count,
        at_once=used.at_once,
        basis=speed.basis,
        rows=rows,
        runs=len(each),
        flops=len(seeds) * sum(row.flops for row in rows),
        seconds=until_the_last([], each, used.at_once),
        device_seconds=sum(each) * used.ranks / used.runs_on_each,
        disk_bytes=disk_bytes,
        peak_disk_bytes=disk_bytes + _removed_bytes(rows, len(seeds), used.at_once),
        checkpoint_bytes=len(seeds) * sum(row.checkpoint_bytes for row in rows),
        runs_left=len(left),
        seconds_left=until_the_last([], left, used.at_once),
    )


def _find_devices(plan: Plan, device: str | None, devices: int | None, places: Places) -> _Devices:
    """The devices for a plan's runs: those of this machine unless a device or a number is given."""
    ranks = places.devices_per_trial
    if devices is not None and ranks > devices:
        raise InputError(
            f"--devices-per-trial is {ranks}, but --devices is {devices}: raise --devices, or "
            "lower --devices-per-trial"
        )
    if device is None and devices is None:
        here = places.here(plan.base.training.threads)
        gpus = {gpu for place in here for gpu in place.devices}
        count, at_once = len(gpus) or min(count_cores(), len(here) * ranks), len(here)
    else:
        count = devices or ranks  # by default those of one run
        at_once = places.workers or count // ranks * places.trials_per_device
    return _Devices(count, ranks, min(len(plan.cells), at_once))


def _cost_rows(
    configs: Mapping[str, Config], speed: Speed, devices: float, work: Left
) -> tuple[RowCost, ...]:
    """The cost of each row on so many ``devices`` for each of its runs. One that keeps no
    checkpoints is scored with another row's training.
    """
    kept = {each.rows[0]: each.checkpoints for each in trainings_of(configs)}
    left = Counter(row_of(name) for name in work.left)
    rows: list[RowCost] = []
    for row, config in configs.items():
        checkpoints, parameters = kept.get(row, 0), count_parameters(config.model)
        rows.append(
            RowCost(
                name=row,
                parameters=parameters,
                flops=run_flops(config) if checkpoints else 0.0,
                seconds=speed.seconds(config, devices) if checkpoints else SCORING_SECONDS,
                memory_bytes=speed.memory.get(row),
                disk_bytes=checkpoints * parameters * _WEIGHT_BYTES,
                checkpoint_bytes=checkpoint_bytes(config, checkpoints) if checkpoints else 0,
                left=left[row],
            )
        )
    return tuple(rows)


def _seconds_left(
    configs: Mapping[str, Config], speed: Speed, devices: float, work: Left
) -> list[float]:
    """The seconds of each run without a result; those that are not trained are only scored."""
    found: list[float] = []
    for name in work.left:
        if name in work.trained:
            found.append(speed.seconds(configs[row_of(name)], devices))
        else:
            found.append(SCORING_SECONDS)
    return found


def _removed_bytes(rows: Sequence[RowCost], seeds: int, at_once: int) -> int:
    """The most that runs in progress hold at a time and remove once they are scored."""
    removed = sorted(row.checkpoint_bytes - row.disk_bytes for row in [*rows] * seeds)
    return sum(removed[-at_once:])


def checkpoint_bytes(config: Config, kept: int) -> int:
    """The disk space of ``kept`` checkpoints, or of the fewest that a run keeps."""
    each = 3 * count_parameters(config.model) * _WEIGHT_BYTES
    return max(_MIN_CHECKPOINTS, kept) * each


def _find_speed(
    device: str | None,
    finished: Sequence[Run],
    folder: TableFolder | None,
    configs: Mapping[str, Config],
) -> Speed:
    """The speed of ``device`` if it is given, else of finished runs, else as measured here."""
    if device is not None:
        return nominal_speed(device, configs)
    if folder is not None and finished:
        return speed_of_runs(finished, folder)
    from ablations.costs.measure import measured_speed  # imports torch

    return measured_speed(configs)
