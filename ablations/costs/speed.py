"""The speed of a device, and the time of runs."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, linear_regression

from ablations.files import PLAN_FILE
from ablations.folder import TableFolder
from ablations.tables.plan import Plan
from ablations.tables.plan_file import load_plan, settle_plan
from experiments.devices import nominal_peak
from experiments.records.run import Run
from transformer.config import Config, ModelConfig, override
from transformer.errors import InputError
from transformer.evaluation.counts import step_flops, training_flops
from transformer.formats import counted

# Section 5.2: 100,000 steps of the base model in 12 hours on 8 P100.
_PAPER_STEP_SECONDS = 8 * 12 * 3_600 / 100_000
# experiments/results/gpu-h200.jsonl: our steps on an H200 in bf16.
_BASE_STEP_SECONDS, _BIG_STEP_SECONDS = 0.0655, 0.1259
_BIG = ModelConfig(d_model=1_024, d_ff=4_096, num_heads=16)
_STEP_TOKENS = 25_000
# The time to launch the kernels of `small` on that GPU, without torch.compile.
_MIN_STEP_SECONDS = 0.020
# About ten seconds to load Lightning, CUDA and the data, and ten to translate 2,000 sentences.
SCORING_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that a run of ``config`` takes on one device."""

    config: Config
    seconds: float


def predict(config: Config, known: Sequence[Timing]) -> float | None:
    """Seconds that a run of ``config`` takes; None if nothing is known.

    If its own time is ``known``, it is that. Otherwise a step takes a fixed time, which is most of
    it in small models, plus a time per FLOP; both are fitted to the known times. One that would be
    negative is left out. A variant counts as the paper's model of the same sizes.
    """
    if not known:
        return None
    own = [timing.seconds for timing in known if timing.config == config]
    if own:
        return fmean(own)
    flops = [step_flops(timing.config) for timing in known]
    seconds = [timing.seconds / timing.config.training.max_steps for timing in known]
    steps = config.training.max_steps
    if len(set(flops)) > 1:
        line = linear_regression(flops, seconds)
        if line.slope >= 0 and line.intercept >= 0:
            return steps * (line.intercept + line.slope * step_flops(config))
        if line.slope < 0:
            return steps * fmean(seconds)
    return steps * step_flops(config) * sum(seconds) / sum(flops)


def until_the_last(running: Sequence[float], waiting: Sequence[float], places: int) -> float:
    """Seconds until the last run ends, if every free slot takes the longest waiting run.

    Args:
        running: the seconds left of each run in progress
        waiting: the seconds of each run that has not begun
        places: the number of slots
    """
    free = [*running, *[0.0] * (places - len(running))]
    heapq.heapify(free)
    for seconds in sorted(waiting, reverse=True):
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """The ``known`` times of runs on ``device``, from which the times of others are predicted.

    ``basis`` says where they come from. ``as_ran`` is True if they are those of whole runs, next to
    others that ran at the same time. A step takes at least ``min_step_seconds``. ``memory`` has a
    process's peak in bytes, for the rows where it was measured. ``devices`` are those of the runs
    that the times were averaged over.
    """

    device: str
    basis: str
    known: Sequence[Timing]
    as_ran: bool = False
    min_step_seconds: float = 0.0
    memory: Mapping[str, int] = field(default_factory=dict[str, int])
    devices: Sequence[str] = ()

    def seconds(self, config: Config, devices: float) -> float:
        """Seconds of a run on ``devices``, a fraction if several runs share one."""
        alone = predict(config, self.known)
        assert alone is not None, "a speed without a known run"
        least = config.training.max_steps * self.min_step_seconds
        overhead = 0.0 if self.as_ran else SCORING_SECONDS
        return max(least, alone / devices) + overhead


def nominal_speed(device: str, configs: Mapping[str, Config]) -> Speed:
    """The speed of a GPU such as ``H100``, from a known GPU's and the ratio of nominal peaks."""
    precision = next(iter(configs.values())).training.precision
    if precision == "auto":
        precision = "bf16" if nominal_peak(device, "bf16") else "fp32"
    peak = nominal_peak(device, precision)
    if peak is None:
        raise InputError(
            f"no nominal peak of {device!r} in {precision} is known: give one of NVIDIA's common "
            "GPUs, such as H100, A100, L4 or 'RTX 4090'"
        )
    if precision == "bf16":
        known, basis, seconds = "H200", "our base and big models on an H200", _step_on_h200
    else:
        known, basis, seconds = "P100", "the paper's base model on P100", _step_on_p100
    slower = (nominal_peak(known, precision) or peak) / peak
    timings: list[Timing] = []
    for config in configs.values():
        timings.append(Timing(config, config.training.max_steps * seconds(config) * slower))
    return Speed(
        device=device,
        basis=f"{basis}, in proportion to its nominal peak of {peak / 1e12:g} TFLOP/s in "
        f"{precision}",
        known=timings,
        min_step_seconds=_MIN_STEP_SECONDS,
    )


def _step_on_p100(config: Config) -> float:
    base = training_flops(ModelConfig(), _STEP_TOKENS, _STEP_TOKENS)
    return _PAPER_STEP_SECONDS * step_flops(config) / base


def _step_on_h200(config: Config) -> float:
    """Seconds of a step: a time per token, for memory traffic, plus a time per FLOP."""
    line = linear_regression(
        [training_flops(model, _STEP_TOKENS, _STEP_TOKENS) for model in (ModelConfig(), _BIG)],
        [_BASE_STEP_SECONDS, _BIG_STEP_SECONDS],
    )
    tokens = config.data.tokens_per_batch / _STEP_TOKENS
    return line.intercept * tokens + line.slope * step_flops(config)


def open_planned(plan: Plan, root: Path) -> TableFolder | None:
    """The runs in a table's directory, read by the current ``plan``; None without a directory."""
    if not (root / PLAN_FILE).exists():
        return None
    shared = load_plan(root).base.training
    base = override(plan.base, precision=shared.precision, threads=shared.threads)
    return TableFolder(root, settle_plan(root, replace(plan, base=base)))


def speed_of_runs(finished: Sequence[Run], folder: TableFolder) -> Speed:
    """The speed of finished runs in a table's directory, from each row's mean, as in status.

    Copied runs, which have no attempt record, count only if there are no others.
    """
    configs = folder.configs
    seconds: dict[str, list[float]] = {}
    memory: dict[str, int] = {}
    devices: list[str] = []
    trained = [run for run in finished if run.is_whole] or finished
    here = [run for run in trained if run.attempt] or trained
    for run in here:
        assert run.result is not None and run.seconds is not None
        devices.append(run.result.device)
        seconds.setdefault(run.row, []).append(run.seconds * run.result.devices)
        peak = run.result.peak_memory_bytes
        if peak is not None:
            memory[run.row] = max(peak, memory.get(run.row, 0))
    return Speed(
        device=devices[-1],
        basis=f"{counted(len(here), 'finished run')} in {folder.path}",
        known=[Timing(configs[row], fmean(of_row)) for row, of_row in seconds.items()],
        as_ran=True,
        memory=memory,
        devices=devices,
    )
