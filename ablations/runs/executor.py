"""Where runs are carried out: this machine (`local`) or a Ray cluster (`on_ray`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptEnd:
    """How an attempt ended: ``DONE`` or ``PRUNED`` (published, as ``ended`` says), ``STOPPED``,
    ``FAILED`` (to be tried again), ``GIVEN_UP`` or ``REFUSED``; ``text`` says it to the user.
    """

    state: RunState
    text: str
    ended: Ended | None = None


class Executor(Protocol):
    """Carries out attempts, each by :func:`ablations.runs.supervise.supervise`."""

    def places(self) -> Sequence[Place]:
        """All places there are now, used or free; those of a cluster come and go."""
        ...

    def start(self, job: Job, place: Place) -> None:
        """Begin an attempt at a free place."""
        ...

    def ended(self) -> Sequence[tuple[str, AttemptEnd]]:
        """The attempts that have ended since the last call, by the names of their cells."""
        ...

    def stop(self, *, kill: bool) -> None:
        """Let all attempts end after a checkpoint, or at once."""
        ...

    def close(self) -> None:
        """Let go of what is left."""
        ...
