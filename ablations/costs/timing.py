"""How long a run takes, judged by runs whose time is known."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ablations.costs.devices import Device, find_gpu
from ablations.files import PLAN_FILE
from ablations.runs.attempts import elapsed, read_result
from ablations.tables.plan import Plan, load_plan
from ablations.tables.table import Cell
from experiments.run.devices import nominal_peak
from transformer.config import Config
from transformer.errors import InputError
from transformer.evaluation.counts import run_flops, step_flops

# Without torch.compile a step of the base model launches about a thousand kernels, each of which
# takes the CPU about 10 µs however small it is.
_MIN_STEP_SECONDS = 0.010
# About ten seconds to load Lightning, CUDA and the data, and as many to translate 2,000 sentences.
_OVERHEAD_SECONDS = 20.0
_ASSUMED = f"{_OVERHEAD_SECONDS:.0f} s per run for start and scoring"


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that a run of ``config`` took, or will have taken, on one device."""

    config: Config
    seconds: float


def predict(config: Config, known: Sequence[Timing]) -> float | None:
    """Seconds that a run of ``config`` takes; None if nothing is known.

    A step takes a fixed time plus a time per FLOP, both fitted to the known runs: in small models
    the fixed part outweighs the other.
    """
    if not known:
        return None
    flops = [step_flops(timing.config) for timing in known]
    seconds = [timing.seconds / timing.config.training.max_steps for timing in known]
    steps = config.training.max_steps
    if len(set(flops)) > 1:
        line = statistics.linear_regression(flops, seconds)
        if line.slope >= 0 and line.intercept >= 0:
            return steps * (line.intercept + line.slope * step_flops(config))
        if line.slope < 0:
            return steps * statistics.fmean(seconds)
    return steps * step_flops(config) * sum(seconds) / sum(flops)


def finished_cells(plan: Plan, root: Path) -> frozenset[Cell]:
    """The runs of ``plan`` that have a result in the directory ``root``."""
    if not (root / PLAN_FILE).exists():
        return frozenset()
    there = load_plan(root)
    if (there.table, there.scale) != (plan.table, plan.scale):
        return frozenset()
    return frozenset(cell for cell in plan.cells if read_result(cell.directory(root)) is not None)


def until_the_last(running: Sequence[float], waiting: Sequence[float], workers: int) -> float:
    """Seconds until the last run ends, if each free worker takes the next of ``waiting``.

    Args:
        running: seconds that the runs in progress still need
        waiting: seconds that each of the others takes
    """
    free = [*running, *[0.0] * (workers - len(running))]
    heapq.heapify(free)
    for seconds in waiting:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """How fast ``device`` trains, and how that is known.

    Other runs are predicted from the ``known`` ones, with at least ``min_step_seconds`` a step,
    and ``overhead_seconds`` are added to each for its start and its scoring. ``as_ran``: the known
    times are those of whole runs, as many at a time as there were. ``memory`` has the most bytes
    that a run's process held, of the rows where that was measured.
    """

    source: str
    device: Device
    known: tuple[Timing, ...]
    min_step_seconds: float = 0.0
    overhead_seconds: float = 0.0
    as_ran: bool = False
    memory: Mapping[str, int] = field(default_factory=dict[str, int])

    def seconds(self, config: Config, devices: float) -> float:
        """Seconds of a run on ``devices``, less than one where several runs share one."""
        found = predict(config, self.known)
        assert found is not None, "a speed without a known run"
        least = config.training.max_steps * self.min_step_seconds
        return self.overhead_seconds + max(least, found / devices)


def find_speed(plan: Plan, configs: Mapping[str, Config], root: Path, gpu: str | None) -> Speed:
    """The speed of the ``gpu`` if one is named, else of finished runs, else as measured here.

    Args:
        plan: the table that is to be run
        configs: the configurations of the rows that are to be run
        root: the table's directory, which need not exist
        gpu: such as ``H100``

    Raises:
        InputError: for an unknown GPU, or a directory of another table.
    """
    if gpu is not None:
        return _of_gpu(gpu, configs)
    return _of_finished_runs(plan, root) or _measured(configs)


def _of_gpu(name: str, configs: Mapping[str, Config]) -> Speed:
    precision = next(iter(configs.values())).training.precision
    gpu = find_gpu(name, precision)
    speed = gpu.peak * gpu.share
    return Speed(
        source=f"{gpu.share:.0%} of NVIDIA's {gpu.peak / 1e12:g} TFLOP/s in "
        f"{'bf16' if gpu.bf16 else 'fp32'} ({gpu.source}); assumed: at least "
        f"{_MIN_STEP_SECONDS * 1e3:.0f} ms per step to launch its kernels, and {_ASSUMED}",
        device=gpu,
        known=tuple(Timing(config, run_flops(config) / speed) for config in configs.values()),
        min_step_seconds=_MIN_STEP_SECONDS,
        overhead_seconds=_OVERHEAD_SECONDS,
    )


def _of_finished_runs(plan: Plan, root: Path) -> Speed | None:
    if not (root / PLAN_FILE).exists():
        return None
    there = load_plan(root)
    if (there.table, there.scale) != (plan.table, plan.scale):
        raise InputError(
            f"{root} belongs to {there.table} at scale {there.scale}: give another --directory"
        )
    configs = there.configs
    known: list[Timing] = []
    memory: dict[str, int] = {}
    device = None
    for cell in there.cells:
        directory = cell.directory(root)
        if (result := read_result(directory)) is not None:
            seconds = elapsed(directory, result) * result.devices
            known.append(Timing(configs[cell.row], seconds))
            if (peak := result.peak_memory_bytes) is not None:
                memory[cell.row] = max(peak, memory.get(cell.row, 0))
            device = Device(
                name=result.device,
                gpu=nominal_peak(result.device, "fp32") is not None,
                bf16=result.precision == "bf16",
            )
    if device is None:
        return None
    source = f"{len(known)} finished run{'s' * (len(known) > 1)} in {root}"
    return Speed(source=source, device=device, known=tuple(known), as_ran=True, memory=memory)


def _measured(configs: Mapping[str, Config]) -> Speed:
    """Some steps of the first row and of those with the fewest and the most FLOPs."""
    from ablations.costs.measure import measure  # which imports torch

    by_flops = sorted(configs, key=lambda name: step_flops(configs[name]))
    names = list(dict.fromkeys((by_flops[0], next(iter(configs)), by_flops[-1])))
    device, known, memory = measure({name: configs[name] for name in names})
    if not device.gpu:
        device = replace(device, name=f"one core of {device.name.partition(',')[0]}")
    return Speed(
        source=f"some steps of {', '.join(names)} on {device.name}, measured now; "
        f"assumed: {_ASSUMED}",
        device=device,
        known=tuple(known),
        overhead_seconds=_OVERHEAD_SECONDS,
        memory=memory,
    )
