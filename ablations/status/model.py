"""The status of a table or a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.records.attempt import Attempt, Failure
from experiments.records.progress import Progress, RunState
from transformer.config import to_dict

ENDED = (RunState.DONE, RunState.PRUNED, RunState.GIVEN_UP)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A row of a table with a seed, or a trial of a search; what is unknown is None.

    ``attempt`` is the newest one, which last reported at ``heard_at``, in seconds since the epoch;
    ``silent_seconds`` have passed since, if that is too long for a run in progress. ``scores``,
    those of the validation set, and ``seconds`` (its duration) are a finished run's. ``failures``
    are oldest first.
    """

    name: str
    state: RunState
    attempt: Attempt | None = None
    progress: Progress | None = None
    heard_at: float | None = None
    silent_seconds: float | None = None
    scores: dict[str, float] = field(default_factory=dict)
    seconds: float | None = None
    seconds_left: float | None = None
    failures: tuple[Failure, ...] = ()

    @property
    def row(self) -> str:
        """The name of a table's row; empty for a trial."""
        return self.name.rpartition("/")[0]

    @property
    def is_live(self) -> bool:
        """Whether it is in progress and reports."""
        return self.state == RunState.RUNNING and self.silent_seconds is None


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """All runs in their order at the time ``at``, in seconds since the epoch.

    ``seconds_left`` is until the last run ends with as many at a time as now; None if unknown.
    ``is_driven`` says that a driver is at work, even if no run has begun, and ``passed`` how many
    trials of a search went on from where trials are compared.
    """

    title: str
    at: float
    runs: tuple[Run, ...]
    seconds_left: float | None = None
    is_driven: bool = False
    passed: str = ""

    @property
    def counts(self) -> Mapping[RunState, int]:
        """The number of runs in each state that occurs."""
        return Counter(run.state for run in self.runs)

    @property
    def is_over(self) -> bool:
        """Whether every run has ended."""
        return all(run.state in ENDED for run in self.runs)


def to_json(status: Status) -> dict[str, Any]:
    """The status as a JSON object. Times are in seconds, ``…_at`` since the epoch.

    ``title``; ``at``; ``seconds_left`` until all runs have ended; ``counts`` of runs by state; and
    ``runs``, each with ``name``, ``state`` (``running``, ``failed``, ``given up``, ``stopped``,
    ``waiting``, ``done`` or ``pruned``), ``attempt``, ``worker``, ``host``, ``devices``, ``ranks``,
    ``heard_at``, ``silent_seconds`` (null unless too many), ``stage``, ``step``, ``max_steps``,
    ``loss``, ``tokens_per_second``, ``seconds_left``, ``scores`` by measure, ``seconds`` and
    ``failures``, each with ``attempt``, ``reason``, ``lines`` and ``at``. What is unknown is null.
    """
    of_attempt = ("worker", "host", "devices", "ranks")
    of_progress = ("stage", "step", "max_steps", "loss", "tokens_per_second")
    own = ("heard_at", "silent_seconds", "seconds_left", "scores", "seconds")
    return {
        "title": status.title,
        "at": status.at,
        "seconds_left": status.seconds_left,
        "counts": dict(status.counts),
        "runs": [
            {
                "name": run.name,
                "state": run.state,
                "attempt": run.attempt and run.attempt.number,
                **{key: getattr(run.attempt, key, None) for key in of_attempt},
                **{key: getattr(run.progress, key, None) for key in of_progress},
                **{key: getattr(run, key) for key in own},
                "failures": [to_dict(failure) for failure in run.failures],
            }
            for run in status.runs
        ],
    }
