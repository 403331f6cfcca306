"""Where and how runs are carried out, as the user asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ablations.runs.executor import Executor, Place
from ablations.runs.local import LocalExecutor
from ablations.runs.lock import WHOLE, Shard
from ablations.runs.places import find_places
from experiments.records.experiment import Log
from transformer.config import Config
from transformer.errors import InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """On a Ray cluster or here, at how many places, every n-th run alone, in how many parts a step,
    how often a failed one again, and what they log to.
    """

    ray: str | None = None
    shard: Shard = WHOLE
    workers: int | None = None
    devices_per_trial: int = 1
    trials_per_device: int = 1
    accumulate: int = 1
    retries: int = 2
    log: Log = "wandb"

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
