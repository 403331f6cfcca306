"""Options of ``run`` and ``search``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ablations.runs.executor import Executor, Place
from ablations.runs.lock import WHOLE, Shard
from ablations.runs.places import find_places
from experiments.records.experiment import Log
from transformer.config import Config
from transformer.errors import InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """How many runs there are at a time."""

    workers: int | None = None
    """runs at a time [default: one for each GPU, or for each core if there is no GPU]"""

    devices_per_trial: int = 1
    """GPUs of one run; without a GPU its processes, each on cores of its own"""

    trials_per_device: int = 1
    """runs on a GPU, or core"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options(Places):
    """The options of ``run`` and ``search``; the fields' docstrings are their help."""

    ray: str | None = None
    """address of the Ray cluster to run on, or auto for the running one [default: this machine]"""

    shard: Annotated[Shard, Parameter(parse=False)] = WHOLE
    """which runs there are for this driver; an option of ``run`` alone"""

    accumulate: int = 1
    """parts of a step, to save memory"""

    retries: int = 2
    """of a run that failed"""

    retry_failed: bool = False
    """also run what was given up before"""

    # Both change the rounding, and so are the same for all runs of a directory.
    precision: Literal["bf16", "fp32"] | None = None
    """of products [default: as in earlier runs, or bf16 if this machine multiplies it]"""

    threads: int | None = None
    """CPU threads of a run [default: as before, or 1]"""

    log: Log = "wandb"
    """what logs the metrics"""

    def __post_init__(self) -> None:
        for name, value, least in (
            ("retries", self.retries, 0),
            ("accumulate", self.accumulate, 1),
        ):
            if value < least:
                raise InputError(f"--{name} is {value}, but must be at least {least}")
        if self.ray is not None and self.workers is not None:
            raise InputError("--workers is for this machine: a Ray cluster has its own resources")
        if self.ray is not None and self.devices_per_trial > 1 < self.trials_per_device:
            raise InputError(
                "on a Ray cluster runs share a GPU (--trials-per-device) or have several "
                "(--devices-per-trial), but not both"
            )

    def check(self, base: Config) -> None:
        """Check that there is room for runs like ``base``, before a directory is made."""
        if self.ray is None:
            self._places(base)
        elif find_spec("ray") is None:
            raise InputError("--ray needs Ray: pip install 'attention-is-all-you-need[ray]'")

    def _places(self, base: Config) -> tuple[Place, ...]:
        return find_places(
            self.workers,
            devices_per_trial=self.devices_per_trial,
            trials_per_device=self.trials_per_device,
            threads=base.training.threads or 1,
        )

    def executor(
        self, root: Path, base: Config, note: Callable[[str], None]
    ) -> tuple[Executor, str]:
        """What carries out runs like ``base`` in ``root``, and how to say where."""
        if self.ray is None:
            # Here, as reading a corpus takes numpy and sentencepiece, for which no help waits.
            from ablations.runs.local import LocalExecutor

            places = self._places(base)
            devices = places[0].devices
            gpus = f"{len(devices)} GPUs each" if len(devices) > 1 else "the GPU"
            return LocalExecutor(places), gpus if devices else "the CPU"
        from ablations.runs.on_ray import RayExecutor  # which imports ray, an extra

        executor = RayExecutor(
            self.ray,
            root,
            note,
            devices=self.devices_per_trial,
            sharing=self.trials_per_device,
            threads=base.training.threads or 1,
        )
        where = f", whose dashboard is at {executor.dashboard}" if executor.dashboard else ""
        return executor, f"the Ray cluster{where}"
