"""The status of a table or a search, from files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from ablations.costs.speed import Timing, predict, until_the_last
from ablations.folder import open_runs
from ablations.runs.lock import is_driven
from experiments.records.progress import Progress, RunState
from experiments.records.run import Run
from transformer.config import Config, to_dict

ENDED = (RunState.DONE, RunState.PRUNED, RunState.GIVEN_UP)


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """All runs in their order.

    ``seconds_left`` is until the last run ends with as many at a time as now, and ``left`` that of
    each run in progress by its name; None if unknown. ``is_driven`` says that a driver is at work,
    even if no run has begun.
    """

    title: str
    runs: tuple[Run, ...]
    seconds_left: float | None = None
    left: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    is_driven: bool = False

    @property
    def counts(self) -> Mapping[RunState, int]:
        """The number of runs in each state that occurs."""
        return Counter(run.state for run in self.runs)

    @property
    def is_over(self) -> bool:
        """Whether every run has ended."""
        return all(run.state in ENDED for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """What ``status --json`` prints: all but ``left`` of this, and of each run its ``name``,
        ``state``, newest ``attempt`` and its last ``progress``; ``silent_seconds`` since then, if
        that is too long for a run in progress; its ``scores`` on the validation set and its
        duration, ``seconds``, once it has ended; and its ``seconds_left``.
        """
        runs = [
            {
                "name": run.name,
                "state": run.state,
                "attempt": run.attempt and to_dict(run.attempt),
                "progress": run.report and to_dict(run.report),
                "silent_seconds": run.silent_seconds,
                "scores": run.scores if run.state in ENDED else {},
                "seconds": run.seconds if run.state in ENDED else None,
                "seconds_left": self.left.get(run.name),
            }
            for run in self.runs
        ]
        about_all = {"seconds_left": self.seconds_left, "is_driven": self.is_driven}
        return {"title": self.title, "runs": runs, **about_all}


class DirectoryReader:
    """Reads the directory of a table or a search repeatedly, but finished runs only once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._finished: dict[str, Run] = {}

    def read(self) -> Status:
        """The status now.

        Raises:
            InputError: if the directory is not a table's or a search's.
        """
        folder = open_runs(self._directory)
        # A search's driver also trains its best trials again, in a directory below.
        driven = any(map(is_driven, (self._directory, self._directory.absolute().parent)))
        runs = folder.look(self._finished)
        if driven:  # which continues what was stopped
            runs = [
                replace(x, state=RunState.WAITING) if x.state == RunState.STOPPED else x
                for x in runs
            ]
        left, seconds_left = _time_left(runs, folder.configs)
        return Status(
            title=folder.title,
            runs=tuple(runs),
            seconds_left=seconds_left,
            left=left,
            is_driven=driven,
        )


def _time_left(
    runs: Sequence[Run], configs: Mapping[str, Config]
) -> tuple[dict[str, float | None], float | None]:
    """The time left of each run in progress, and of all, by the ``configs`` of rows."""
    taken: dict[str, list[float]] = defaultdict(list)
    whole = [(run, seconds) for run in runs if (seconds := _whole(run)) is not None]
    # Runs without an attempt were copied here, perhaps from a faster machine.
    for run, seconds in [pair for pair in whole if pair[0].attempt] or whole:
        taken[run.row].append(seconds)
    known = [Timing(configs[row], fmean(seconds)) for row, seconds in taken.items()]
    expected = {row: predict(config, known) for row, config in configs.items()}
    of_each = {
        run.name: _left(run.report, expected[run.row])
        for run in runs
        if run.state == RunState.RUNNING
    }
    live = [of_each[run.name] for run in runs if run.is_live]
    waiting = [expected[x.row] for x in runs if x.state not in ENDED and not x.is_live]
    left, later = ([seconds for seconds in x if seconds is not None] for x in (live, waiting))
    if not live or len(left) + len(later) < len(live) + len(waiting):
        return of_each, None
    share = _share_of_steps(runs, configs)
    return of_each, until_the_last(left, [share * seconds for seconds in later], len(live))


def _share_of_steps(runs: Sequence[Run], configs: Mapping[str, Config]) -> float:
    """The share of their steps that the runs which ended took, as trials of a search are pruned."""
    shares = [
        run.pruned.step / configs[run.row].training.max_steps if run.pruned else 1.0
        for run in runs
        if run.state in (RunState.DONE, RunState.PRUNED)
    ]
    return fmean(shares or [1.0])


def _whole(run: Run) -> float | None:
    """How long a run takes from its start to its end; None if that is not known yet."""
    progress = run.report
    if run.state != RunState.RUNNING or progress is None or progress.stage != RunState.TRAIN:
        return run.seconds if run.state == RunState.DONE else None
    rest = progress.max_steps - progress.step
    if progress.seconds_left is None or rest <= 0:
        return None
    return progress.seconds_left * progress.max_steps / rest


def _left(progress: Progress | None, expected: float | None) -> float | None:
    if progress is None or progress.stage == RunState.PREPARE:
        return expected
    if progress.stage == RunState.EVALUATE:
        return progress.seconds_left or 0.0
    return progress.seconds_left
