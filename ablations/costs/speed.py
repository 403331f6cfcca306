"""Find the speed of a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from ablations.costs.timing import Timing, predict
from ablations.files import PLAN_FILE
from ablations.runs.attempts import elapsed, read_ended
from ablations.tables.plan import Plan, load_plan
from ablations.tables.table import Cell
from experiments.devices import nominal_peak
from experiments.records.result import Result
from transformer.config import Config, ModelConfig, TrainingConfig
from transformer.errors import InputError, unknown_name
from transformer.evaluation.counts import run_flops, training_flops

# CUDA's names of GPUs that need not be in this machine.
_GPUS = {
    **{name: name for name in ("T4", "A10", "A40", "L4", "L40S", "H200")},
    "P100": "P100-SXM2-16GB",
    "V100": "V100-SXM2-32GB",
    "A100": "A100-SXM4-80GB",
    "H100": "H100 80GB HBM3",
    "RTX 3090": "GeForce RTX 3090",
    "RTX 4090": "GeForce RTX 4090",
}
# Section 5.2: 100,000 steps of the base model in 12 hours on 8 P100.
_PAPER_DEVICE_SECONDS = 8 * 12 * 3_600
_PAPER_TOKENS = 25_000
# Without torch.compile a step of the base model launches about a thousand kernels, each of which
# takes the CPU about 10 µs however small it is.
_MIN_STEP_SECONDS = 0.010
# About ten seconds to load Lightning, CUDA and the data, and as many to translate 2,000 sentences.
_OVERHEAD_SECONDS = 20.0
OVERHEAD = f"{_OVERHEAD_SECONDS:.0f} s per run for start and scoring"


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """The ``known`` times of runs on ``device``, from which those of others are predicted.

    ``source`` says how they are known; ``as_ran``: they are those of whole runs, as many at a time
    as there were. A step takes at least ``min_step_seconds``. ``memory`` has the most bytes that a
    run's process held, of the rows where that was measured.
    """

    device: str
    is_gpu: bool
    precision: str
    source: str
    known: Sequence[Timing]
    as_ran: bool = False
    min_step_seconds: float = 0.0
    memory: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def basis(self) -> dict[str, str]:
        """The device, and how its speed (``text``) and the memory are known."""
        memory = "not measured; weights, gradients and moments take 16 bytes a parameter"
        if self.memory:
            when = "" if self.as_ran else ", before it scores"
            what = "reserved on the GPU" if self.is_gpu else "resident"
            memory = f"the most that a run's process held{when}, {what}, where it was measured"
        about = {"device": self.device, "precision": self.precision}
        return {"text": self.source, "memory": memory, **about}

    def seconds(self, config: Config, devices: float) -> float:
        """Seconds of a run on ``devices``, less than one where several runs share one."""
        found = predict(config, self.known)
        assert found is not None, "a speed without a known run"
        least = config.training.max_steps * self.min_step_seconds
        return max(least, found / devices) + (0.0 if self.as_ran else _OVERHEAD_SECONDS)


def nominal_speed(name: str, configs: Mapping[str, Config]) -> Speed:
    """The speed of the GPU called ``name``, such as ``H100``, in upper or lower case.

    It is taken to reach the share of its nominal peak that the paper's base model reached.
    """
    short = {known.lower(): known for known in _GPUS}.get(name.lower())
    if short is None:
        raise unknown_name("device", name, _GPUS)
    wanted = next(iter(configs.values())).training.precision
    peaks = {x: nominal_peak(_GPUS[short], x) for x in ("bf16", "fp32") if wanted in (x, "auto")}
    precision, peak = next(((x, peak) for x, peak in peaks.items() if peak), (wanted, None))
    if peak is None:
        raise InputError(f"{short} has no nominal peak in {wanted}, which these runs use")
    share = _share_of_the_paper()
    return Speed(
        device=short,
        is_gpu=True,
        precision=precision,
        source=f"{share:.0%} of NVIDIA's {peak / 1e12:g} TFLOP/s in {precision} (assumed: it is "
        "what the paper's base model reached on 8 P100 in 12 hours); assumed: at least "
        f"{_MIN_STEP_SECONDS * 1e3:.0f} ms per step to launch its kernels, and {OVERHEAD}",
        known=[Timing(x, run_flops(x) / (peak * share)) for x in configs.values()],
        min_step_seconds=_MIN_STEP_SECONDS,
    )


def _share_of_the_paper() -> float:
    tokens = TrainingConfig().max_steps * _PAPER_TOKENS
    peak = nominal_peak(_GPUS["P100"], "fp32") or 0.0
    return training_flops(ModelConfig(), tokens, tokens) / (_PAPER_DEVICE_SECONDS * peak)


def read_finished(plan: Plan, root: Path) -> dict[Cell, Result]:
    """The results in a table's directory, which need not exist."""
    if not (root / PLAN_FILE).exists():
        return {}
    there = load_plan(root)
    if (there.table, there.scale) != (plan.table, plan.scale):
        raise InputError(
            f"{root} belongs to {there.table} at scale {there.scale}: give another --directory"
        )
    found = ((cell, read_ended(cell.directory(root))) for cell in there.cells)
    return {cell: ended.result for cell, ended in found if ended and ended.result}


def speed_of_runs(finished: Mapping[Cell, Result], root: Path) -> Speed:
    """The speed of finished runs in a table's directory, by the mean of each row as in status."""
    configs = load_plan(root).configs
    seconds: dict[str, list[float]] = {}
    memory: dict[str, int] = {}
    for cell, result in finished.items():
        spent = elapsed(cell.directory(root), result) * result.devices
        seconds.setdefault(cell.row, []).append(spent)
        if (peak := result.peak_memory_bytes) is not None:
            memory[cell.row] = max(peak, memory.get(cell.row, 0))
    last = list(finished.values())[-1]
    return Speed(
        device=last.device,
        is_gpu=nominal_peak(last.device, "fp32") is not None,
        precision=last.precision,
        source=f"{len(finished)} finished run{'s' * (len(finished) > 1)} in {root}",
        known=[Timing(configs[row], fmean(each)) for row, each in seconds.items()],
        as_ran=True,
        memory=memory,
    )
