"""What a table will cost, before it is run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ablations.costs.basis import Basis
from ablations.costs.disk import run_bytes
from ablations.costs.memory import training_bytes
from ablations.costs.timing import until_the_last, work
from transformer.config import Config
from transformer.evaluation.counts import count_parameters


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """``at_once`` runs at a time on ``devices``, of which each run takes ``devices_per_trial``."""

    devices: int
    devices_per_trial: int
    at_once: int

    @property
    def sharing(self) -> float:
        """How many runs share a device, at least one."""
        return max(1.0, self.at_once * self.devices_per_trial / self.devices)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowCost:
    """One run of a row: FLOPs of training, seconds on the devices of one trial, peak bytes of
    memory on each, and bytes on the disk.
    """

    name: str
    parameters: int
    flops: float
    seconds: float
    memory_bytes: int
    disk_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusCost:
    """Bytes to fetch, bytes on the disk with the prepared text, and seconds to prepare it."""

    fetched_bytes: int
    disk_bytes: int
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A table's cost. ``seconds`` is by the clock, the longest run started first; ``corpus`` is
    None for one that is small.
    """

    title: str
    scale: str
    corpus_name: str
    seeds: tuple[int, ...]
    places: Places
    basis: Basis
    rows: tuple[RowCost, ...]
    corpus: CorpusCost | None

    @property
    def runs(self) -> int:
        """How many there are in all."""
        return len(self.rows) * len(self.seeds)

    @property
    def flops(self) -> float:
        """Of all runs."""
        return len(self.seeds) * sum(row.flops for row in self.rows)

    @property
    def device_seconds(self) -> float:
        """Of all runs, added up over the devices."""
        seconds = sum(row.seconds for row in self.rows)
        return len(self.seeds) * seconds * self.places.devices_per_trial / self.places.sharing

    @property
    def seconds(self) -> float:
        """Until the last run ends."""
        longest_first = sorted((row.seconds for row in self.rows), reverse=True)
        waiting = [seconds for seconds in longest_first for _ in self.seeds]
        return until_the_last([], waiting, self.places.at_once)

    @property
    def disk_bytes(self) -> int:
        """Of all runs, without the corpus."""
        return len(self.seeds) * sum(row.disk_bytes for row in self.rows)


def row_cost(name: str, config: Config, basis: Basis, places: Places) -> RowCost:
    """The cost of one run, in which several devices are as many times as fast as one, and runs
    that share a device as many times as slow.
    """
    return RowCost(
        name=name,
        parameters=count_parameters(config.model),
        flops=work(config),
        seconds=basis.seconds(config, places.devices_per_trial / places.sharing),
        memory_bytes=training_bytes(config, basis.hardware, places.devices_per_trial),
        disk_bytes=run_bytes(config),
    )


def too_large(estimate: Estimate) -> Sequence[str]:
    """The rows that need more memory than the device has for each run, as far as is known."""
    if estimate.basis.memory_bytes is None:
        return []
    bound = estimate.basis.memory_bytes / math.ceil(estimate.places.sharing)
    return [row.name for row in estimate.rows if row.memory_bytes > bound]
