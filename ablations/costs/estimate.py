"""What a table will cost, before it is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ablations.costs.basis import Basis
from ablations.costs.disk import run_bytes
from ablations.costs.memory import training_bytes
from ablations.costs.timing import until_the_last, work
from transformer.config import Config
from transformer.sizes import trained_numbers


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
    devices: int
    devices_per_trial: int
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
        return len(self.seeds) * self.devices_per_trial * seconds

    @property
    def seconds(self) -> float:
        """Until the last run ends."""
        longest_first = sorted((row.seconds for row in self.rows), reverse=True)
        waiting = [seconds for seconds in longest_first for _ in self.seeds]
        return until_the_last([], waiting, self.devices // self.devices_per_trial)

    @property
    def disk_bytes(self) -> int:
        """Of all runs, without the corpus."""
        return len(self.seeds) * sum(row.disk_bytes for row in self.rows)


def row_cost(name: str, config: Config, basis: Basis, devices_per_trial: int) -> RowCost:
    """The cost of one run, in which several devices are as many times as fast as one."""
    return RowCost(
        name=name,
        parameters=trained_numbers(config.model),
        flops=work(config),
        seconds=basis.seconds(config) / devices_per_trial,
        memory_bytes=training_bytes(config, basis.hardware, devices_per_trial),
        disk_bytes=run_bytes(config),
    )


def too_large(estimate: Estimate) -> Sequence[str]:
    """The rows that need more memory than the device has, as far as that is known."""
    bound = estimate.basis.memory_bytes
    return [row.name for row in estimate.rows if bound and row.memory_bytes > bound]
