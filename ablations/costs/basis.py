"""What an estimate of hours stands on, which is always said with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ablations.costs.devices import find_device
from ablations.costs.memory import Hardware
from ablations.costs.past import finished
from ablations.costs.rounding import two_digits
from ablations.costs.timing import Timing, predict, step_work, work
from ablations.tables.plan import PLAN_FILE, Plan, load_plan
from experiments.run.devices import nominal_peak
from transformer.config import Config
from transformer.errors import InputError

# Without torch.compile a step of base launches about a thousand kernels, each of which takes the
# processor some 10 µs however little the GPU has to do.
_LEAST_STEP_SECONDS = 0.010
# Lightning, CUDA and the data are loaded in about ten seconds, and two thousand sentences are
# translated in as many.
_START_AND_SCORING_SECONDS = 20.0
_ASSUMED = f"{_START_AND_SCORING_SECONDS:.0f} s a run for its start and its scoring"


@dataclass(frozen=True, kw_only=True, slots=True)
class Basis:
    """``known`` are runs by one device that others are judged by: run, measured or reckoned.
    No step is faster than ``least_step_seconds``, and ``run_seconds`` are added to each run for
    its start and its scoring. ``memory_bytes`` is what the device has, where that is known.
    """

    text: str
    device: str
    hardware: Hardware
    known: tuple[Timing, ...]
    memory_bytes: float | None = None
    least_step_seconds: float = 0.0
    run_seconds: float = 0.0

    def seconds(self, config: Config, devices: float = 1.0) -> float:
        """What a run of ``config`` takes on ``devices``, less than one where runs share it."""
        found = predict(config, self.known)
        if found is None:
            raise ValueError("a basis without a known run")
        least = config.training.max_steps * self.least_step_seconds
        return self.run_seconds + max(least, found / devices)


def find_basis(
    plan: Plan, configs: Mapping[str, Config], directory: Path, device: str | None
) -> Basis:
    """The device that is named, else runs in the table's directory, else a measurement here.

    Args:
        plan: what is asked for
        configs: the configuration of each of its rows
        directory: of the table, which need not be there yet
        device: such as ``H100``

    Raises:
        InputError: for an unknown device, or a directory of another table.
    """
    if device is not None:
        return _by_peak(device, list(configs.values()))
    return _by_results(plan, directory) or _by_measuring(configs)


def _by_peak(name: str, configs: Sequence[Config]) -> Basis:
    device = find_device(name, configs[0].training.precision)
    speed = device.peak * device.share
    return Basis(
        text=f"{device.share:.0%} of the {two_digits(device.peak / 1e12)} TFLOP/s in "
        f"{'bf16' if device.hardware.half else 'fp32'} that NVIDIA names "
        f"({device.share_from}); assumed: at least {_LEAST_STEP_SECONDS * 1e3:.0f} ms a step to "
        f"launch its kernels, and {_ASSUMED}",
        device=device.name,
        hardware=device.hardware,
        known=tuple(Timing(config, work(config) / speed) for config in configs),
        memory_bytes=device.memory_bytes,
        least_step_seconds=_LEAST_STEP_SECONDS,
        run_seconds=_START_AND_SCORING_SECONDS,
    )


def _by_results(plan: Plan, directory: Path) -> Basis | None:
    if not (directory / PLAN_FILE).exists():
        return None
    there = load_plan(directory)
    if (there.table, there.scale) != (plan.table, plan.scale):
        raise InputError(
            f"{directory} belongs to {there.table} at scale {there.scale}: give another --directory"
        )
    done = finished(directory, there)
    if not done:
        return None
    result = next(reversed(done.values()))[1]
    return Basis(
        text=f"{len(done)} finished run{'s' * (len(done) > 1)} in {directory}",
        device=result.device,
        hardware=Hardware(
            gpu=nominal_peak(result.device, "fp32") is not None, half=result.precision == "bf16"
        ),
        known=tuple(timing for timing, _ in done.values()),
    )


def _by_measuring(configs: Mapping[str, Config]) -> Basis:
    works = {name: step_work(config) for name, config in configs.items()}
    ends = min(works, key=lambda name: works[name]), max(works, key=lambda name: works[name])
    names = list(dict.fromkeys((ends[0], next(iter(configs)), ends[1])))
    from ablations.costs.measure import measure

    device, hardware, known = measure({name: configs[name] for name in names})
    place = device if hardware.gpu else f"one core of {device.partition(',')[0]}"
    return Basis(
        text=f"some steps of {', '.join(names)} on {place}, measured now; assumed: {_ASSUMED}",
        device=place,
        hardware=hardware,
        known=tuple(known),
        run_seconds=_START_AND_SCORING_SECONDS,
    )
