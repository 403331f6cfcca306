"""How far a fleet's work is: what views show, from whichever place it was gathered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from experiments.run.attempt import Failure
from experiments.run.progress import Progress

State = Literal["running", "failed", "given up", "stopped", "waiting", "done", "pruned"]
ENDED: tuple[State, ...] = ("done", "pruned", "given up")
# A run tells of itself each second, by way of the storage each ten.
SILENT_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One cell: a row of a table with a seed, or a trial of a search.

    What is not known is None. ``attempt``, ``worker``, ``host``, ``devices`` and ``ranks`` are of
    the newest attempt, last heard of at ``heard_at``, in seconds since the epoch. Of a finished
    run there are ``perplexity``, ``bleu`` and the ``seconds`` it took; of one under way,
    ``seconds_left``. ``failures`` are those that ended with an exception, oldest first.
    """

    name: str
    state: State
    attempt: int | None = None
    worker: str | None = None
    host: str | None = None
    devices: tuple[int | str, ...] = ()
    ranks: int = 1
    progress: Progress | None = None
    heard_at: float | None = None
    perplexity: float | None = None
    bleu: float | None = None
    seconds: float | None = None
    seconds_left: float | None = None
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A machine on which runs are under way: its workers, their runs, and when one was heard of."""

    name: str
    workers: int
    runs: int
    heard_at: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """All runs in their order, as they were at ``at``, in seconds since the epoch.

    ``seconds_left`` is until the last run ends, with the workers that are seen; None where it
    cannot be told.
    """

    title: str
    at: float
    runs: tuple[Run, ...]
    seconds_left: float | None

    @property
    def counts(self) -> Mapping[State, int]:
        """How many runs there are in each state that any is in."""
        return Counter(run.state for run in self.runs)

    @property
    def is_over(self) -> bool:
        """Whether every run has come to its end."""
        return all(run.state in ENDED for run in self.runs)

    @property
    def running(self) -> tuple[Run, ...]:
        """Those under way, the silent ones too."""
        return tuple(run for run in self.runs if run.state == "running")

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Who works, as far as runs tell."""
        found: dict[str, list[Run]] = {}
        for run in self.running:
            if run.host is not None:
                found.setdefault(run.host, []).append(run)
        return tuple(
            Host(
                name=name,
                workers=len({run.worker for run in runs}),
                runs=len(runs),
                heard_at=max((run.heard_at for run in runs if run.heard_at), default=None),
            )
            for name, runs in sorted(found.items())
        )

    def silent_for(self, run: Run) -> float | None:
        """Seconds since a run under way was heard of, if they are too many; else None."""
        if run.state != "running" or run.heard_at is None:
            return None
        seconds = self.at - run.heard_at
        return seconds if seconds > SILENT_SECONDS else None
