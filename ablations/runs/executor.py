"""The interface between the driver and what carries runs out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ablations.runs.attempts import Ended
from experiments.records.experiment import Experiment, Log
from experiments.records.progress import RunState


@dataclass(frozen=True, slots=True)
class Place:
    """Room for one run at a time: its GPUs as CUDA_VISIBLE_DEVICES names them (none: on the CPU),
    its number of processes, and the node of a cluster on its host.
    """

    number: int
    devices: tuple[int | str, ...] = ()
    ranks: int = 1
    node: str = ""
    host: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """What tells a process its GPUs."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, self.devices))} if self.devices else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One attempt at the run of ``experiment`` in ``root / name``.

    ``accumulate`` and ``log`` are as for :func:`experiments.run.run`. A run that fails more
    than ``retries`` times is given up; one that diverged fails, unless ``may_diverge``, as a trial
    of a search does. The process works in ``folder`` with the variables ``environment``.
    """

    root: Path
    name: str
    experiment: Experiment
    retries: int = 2
    accumulate: int = 1
    log: Log = "wandb"
    may_diverge: bool = False
    folder: Path = field(default_factory=Path.cwd)
    environment: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptEnd:
    """How an attempt ended: ``DONE`` or ``PRUNED`` (published, as ``ended`` says), ``STOPPED``,
    ``FAILED`` (to be tried again), ``GIVEN_UP`` or ``REFUSED``; ``text`` says it to the user.
    """

    state: RunState
    text: str
    ended: Ended | None = None


class RunProcess(Protocol):
    """The part of ``subprocess.Popen`` that every started process provides.

    ``pid`` is also the number of its process group; ``poll`` is the exit code, or minus the signal
    that killed the process, and None while it runs.
    """

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...


class Start(Protocol):
    """Starts a run's process: :func:`ablations.runs.process.start`, or a faster way."""

    def __call__(self, directory: Path, job: Job, place: Place) -> RunProcess: ...


class Executor(Protocol):
    """Carries out attempts, each by :func:`ablations.runs.supervise.supervise`.

    ``places`` are all that there are now, used or free; those of a cluster come and go. ``ended``
    are the attempts that have ended since the last call, by the names of their runs. ``stop`` lets
    all attempts end after a checkpoint, or at once; ``close`` lets go of what is left.
    """

    def places(self) -> Sequence[Place]: ...
    def start(self, job: Job, place: Place) -> None: ...
    def ended(self) -> Sequence[tuple[str, AttemptEnd]]: ...
    def stop(self, *, kill: bool) -> None: ...
    def close(self) -> None: ...
