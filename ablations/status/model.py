"""The status of a table or a search, and of its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.run.attempt import Failure
from experiments.run.progress import Progress, RunState
from transformer.config import to_dict

ENDED = (RunState.DONE, RunState.PRUNED, RunState.GIVEN_UP)
# Runs report each second.
SILENT_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A row of a table with a seed, or a trial of a search; what is unknown is None.

    ``attempt``, ``worker``, ``host``, ``devices`` and ``ranks`` describe the newest attempt, which
    last reported at ``heard_at``, in seconds since the epoch. ``scores``, those of the
    validation set, and ``seconds`` (its duration) are a finished run's. ``failures`` are oldest
    first.
    """

    name: str
    state: RunState
    attempt: int | None = None
    worker: str | None = None
    host: str | None = None
    devices: tuple[int | str, ...] = ()
    ranks: int = 1
    progress: Progress | None = None
    heard_at: float | None = None
    scores: dict[str, float] = field(default_factory=dict)
    seconds: float | None = None
    seconds_left: float | None = None
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A machine with runs in progress, and when it was last heard of."""

    name: str
    runs: int
    heard_at: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """All runs in their order at the time ``at``, in seconds since the epoch.

    ``seconds_left`` is until the last run ends with as many at a time as now; None if unknown.
    ``passed`` says how many trials of a search went on from where trials are compared.
    """

    title: str
    at: float
    runs: tuple[Run, ...]
    seconds_left: float | None
    is_starting: bool = False
    passed: str = ""

    @property
    def counts(self) -> Mapping[RunState, int]:
        """The number of runs in each state that occurs."""
        return Counter(run.state for run in self.runs)

    @property
    def is_over(self) -> bool:
        """Whether every run has ended."""
        return all(run.state in ENDED for run in self.runs)

    @property
    def running(self) -> tuple[Run, ...]:
        """The runs in progress, including silent ones."""
        return tuple(run for run in self.runs if run.state == RunState.RUNNING)

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The machines that work, as far as their runs tell."""
        found: dict[str, list[Run]] = {}
        for run in self.running:
            if run.host is not None:
                found.setdefault(run.host, []).append(run)
        return tuple(
            Host(
                name=name,
                runs=len(runs),
                heard_at=max((run.heard_at for run in runs if run.heard_at), default=None),
            )
            for name, runs in sorted(found.items())
        )

    def silent_for(self, run: Run) -> float | None:
        """Seconds since a run in progress last reported, if that is too long ago; else None."""
        if run.state != RunState.RUNNING or run.heard_at is None:
            return None
        seconds = self.at - run.heard_at
        return seconds if seconds > SILENT_SECONDS else None


def to_json(status: Status) -> dict[str, Any]:
    """The status as a JSON object. Times are in seconds, ``…_at`` since the epoch.

    ``title``; ``at``; ``seconds_left`` until all runs have ended; ``counts`` of runs by state;
    ``hosts``, each with ``name``, ``runs`` and ``heard_at``; and ``runs``, each with
    ``name``, ``state`` (``running``, ``failed``, ``given up``, ``stopped``, ``waiting``, ``done``
    or ``pruned``), ``attempt``, ``worker``, ``host``, ``devices``, ``ranks``, ``heard_at``,
    ``silent_seconds`` (null unless too many), ``stage``, ``step``, ``max_steps``, ``loss``,
    ``tokens_per_second``, ``seconds_left``, ``scores`` by measure, ``seconds`` and
    ``failures``, each with ``attempt``, ``reason``, ``lines`` and ``at``. What is unknown is null.
    """
    keys = ("name", "state", "attempt", "worker", "host", "devices", "ranks", "heard_at")
    of_progress = ("stage", "step", "max_steps", "loss", "tokens_per_second")
    figures = ("seconds_left", "scores", "seconds")
    return {
        "title": status.title,
        "at": status.at,
        "seconds_left": status.seconds_left,
        "counts": dict(status.counts),
        "hosts": [to_dict(host) for host in status.hosts],
        "runs": [
            {
                **{key: getattr(run, key) for key in keys},
                "silent_seconds": status.silent_for(run),
                **{key: getattr(run.progress, key, None) for key in of_progress},
                **{key: getattr(run, key) for key in figures},
                "failures": [to_dict(failure) for failure in run.failures],
            }
            for run in status.runs
        ],
    }
