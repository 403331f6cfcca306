"""Options of ``run`` and ``search``; this machine's places for runs."""

from __future__ import annotations

import itertools
import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from ablations.runs.lock import WHOLE, Shard
from ablations.runs.process import Place
from experiments.command_line import Compile
from experiments.devices import MOST, check_count
from experiments.records.experiment import Log
from transformer.errors import InputError

AT_LEAST_ONE = Parameter(validator=Number(gte=1))
_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # microseconds of CPU time per period, and the period


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Options that decide how many runs there are at a time."""

    workers: Annotated[int | None, AT_LEAST_ONE] = None
    """number of runs at a time [default: one per GPU, or one per core without a GPU]"""

    devices_per_trial: Annotated[int, AT_LEAST_ONE] = 1
    """GPUs per run; without GPUs, processes per run, each on its own cores"""

    trials_per_device: Annotated[int, AT_LEAST_ONE] = 1
    """runs that share one GPU or core"""

    def here(self, threads: int | None) -> tuple[Place, ...]:
        """The places of this machine: by default one for each group of GPUs, or else of cores.

        At the scales for CPUs a run needs less than 1 GiB.

        Args:
            threads: CPU threads of each process; None for one, as two processes of one thread are
                faster than one of two
        """
        devices, cores, ranks = gpus(), count_cores(), self.devices_per_trial
        if ranks > len(devices or range(cores)):
            there = f"GPUs here: {len(devices)}" if devices else f"cores here: {cores}, and no GPU"
            raise InputError(f"--devices-per-trial is {ranks}, but {there}")
        groups: list[tuple[int | str, ...]] = []
        for first in range(0, len(devices) - ranks + 1, ranks):
            groups.append(tuple(devices[first : first + ranks]))
        if not devices:
            groups = [()] * max(1, cores // (ranks * (threads or 1)))
        count = self.workers or len(groups) * self.trials_per_device
        option = "--workers" if self.workers else "runs at a time by --trials-per-device"
        check_count(option, count, len(devices) or cores)
        return tuple(Place(number, groups[number % len(groups)], ranks) for number in range(count))


@dataclass(frozen=True, kw_only=True, slots=True)
class Options(Places):
    """The options of ``run`` and ``search``; the fields' docstrings are their help."""

    ray: str | None = None
    """address of the Ray cluster to run on, or auto for the running one [default: this machine]"""

    shard: Annotated[Shard, Parameter(parse=False)] = WHOLE
    """the share of the runs that this driver takes, from ``run --shard``"""

    accumulate: Annotated[int, AT_LEAST_ONE] = 1
    """gradient-accumulation steps"""

    retries: Annotated[int, Parameter(validator=Number(gte=0))] = 2
    """number of times to try a failed run again"""

    retry_failed: bool = False
    """also try runs that were given up before"""

    keep_checkpoints: bool = False
    """keep whole checkpoints, with Adam's moments [default: once scored, only the weights]"""

    # These affect rounding, so they are the same for all runs of a directory.
    precision: Literal["bf16", "fp32"] | None = None
    """matmul precision [default: that of earlier runs, else bf16 where it is faster]"""

    threads: Annotated[int | None, AT_LEAST_ONE] = None
    """CPU threads per run [default: as in earlier runs, else 1]"""

    compile: Compile = None

    log: Log = "wandb"
    """where to log the metrics"""

    def __post_init__(self) -> None:
        for name in ("accumulate", "retries", "threads", "devices_per_trial"):
            if (getattr(self, name) or 0) > MOST:
                raise InputError(f"--{name.replace('_', '-')} may be at most {MOST:,}")
        if self.ray is None:
            return
        check_count("--trials-per-device", self.trials_per_device, 1)  # for each GPU of a node
        if self.workers is not None:
            raise InputError("--workers is for this machine: a Ray cluster has its own resources")
        if self.devices_per_trial > 1 and self.trials_per_device > 1:
            raise InputError(
                "on a Ray cluster runs share a GPU (--trials-per-device) or have several "
                "(--devices-per-trial), but not both"
            )


def gpus() -> list[int | str]:
    """The GPUs that may be used: those in CUDA_VISIBLE_DEVICES, by number or UUID, or else all."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = (part.strip() for part in visible.split(","))
        # CUDA ignores everything from the first name on that it does not know, such as -1.
        known = itertools.takewhile(
            lambda name: name.isdecimal() or name.startswith(("GPU-", "MIG-")), names
        )
        return [int(name) if name.isdecimal() else name for name in known]
    try:
        listing = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True
        ).stdout
    except subprocess.TimeoutExpired as error:  # else all runs would share the first GPU
        raise InputError(
            "nvidia-smi does not answer: name this machine's GPUs in CUDA_VISIBLE_DEVICES"
        ) from error
    except (subprocess.SubprocessError, OSError):
        return []
    return list(range(sum(line.startswith("GPU ") for line in listing.splitlines())))


def count_cores() -> int:
    """The number of cores that this process may use, within its container's quota."""
    here = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if here else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # there is none, or it says "max"
        quota, period = map(int, _QUOTA.read_text(encoding="ascii").split())
        cores = min(cores, max(1, quota // period))
    return cores
