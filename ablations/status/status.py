"""A table's or a search's status, read from files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from ablations.costs.speed import SCORING_SECONDS, Timing, predict, until_the_last
from ablations.folder import open_runs
from ablations.runs.lock import is_driven
from ablations.tables.trainings import Training
from ablations.tables.warn import stale_rows
from experiments.records.progress import Progress, RunState
from experiments.records.run import Run
from experiments.records.source import source_warnings
from transformer.config import Config, to_dict

ENDED = (RunState.DONE, RunState.PRUNED, RunState.GIVEN_UP, RunState.STALE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """All runs, in the plan's order.

    ``seconds_left`` is the time until the last run ends with as many at a time as now, and ``left``
    that of each run in progress by its name; None if unknown. ``is_driven`` says that a driver is
    working, even if no run has begun. ``warnings`` are lines about rows that have changed.
    """

    title: str
    runs: tuple[Run, ...]
    seconds_left: float | None = None
    left: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    is_driven: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def counts(self) -> Mapping[RunState, int]:
        """The number of runs in each state that occurs."""
        return Counter(run.state for run in self.runs)

    @property
    def is_over(self) -> bool:
        """Whether every run has ended."""
        return all(run.state in ENDED for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """What ``status --json`` prints: these fields except ``left``, and for each run its
        ``name``, ``state``, newest ``attempt`` and last ``progress``; ``silent_seconds`` since
        then, if that is too long for a run in progress; once it has ended, its ``scores`` on the
        validation set and its duration in ``seconds``; and its ``seconds_left``.
        """
        runs = [
            {
                "name": run.name,
                "state": run.state,
                "attempt": to_dict(run.attempt) if run.attempt else None,
                "progress": to_dict(run.report) if run.report else None,
                "silent_seconds": run.silent_seconds,
                "scores": run.scores if run.state in ENDED else {},
                "seconds": run.seconds if run.state in ENDED else None,
                "seconds_left": self.left.get(run.name),
            }
            for run in self.runs
        ]
        about_all = {"seconds_left": self.seconds_left, "is_driven": self.is_driven}
        return {"title": self.title, "runs": runs, **about_all, "warnings": self.warnings}


class DirectoryReader:
    """Reads the directory of a table or a search repeatedly; finished runs are read only once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._finished: dict[str, Run] = {}

    def read(self) -> Status:
        """The current status.

        Raises:
            InputError: if the directory is not a table's or a search's.
        """
        folder = open_runs(self._directory)
        # A search's driver also trains its best trials again, in a directory below.
        driven = is_driven(self._directory) or is_driven(self._directory.absolute().parent)
        runs = folder.look(self._finished)
        for index, run in enumerate(runs):
            if driven and run.state == RunState.STOPPED:  # the driver will continue it
                runs[index] = replace(run, state=RunState.WAITING)
        left, seconds_left = _time_left(runs, folder.configs, folder.trainings)
        return Status(
            title=folder.title,
            runs=tuple(runs),
            seconds_left=seconds_left,
            left=left,
            is_driven=driven,
            warnings=(*stale_rows(runs), *source_warnings(runs)),
        )


def _time_left(
    runs: Sequence[Run], configs: Mapping[str, Config], trainings: Sequence[Training]
) -> tuple[dict[str, float | None], float | None]:
    """The seconds left of each run in progress, by name, and of all runs; None if unknown."""
    scored = _only_scored(runs, trainings)
    known = _known_times(runs, configs)
    expected = {row: predict(config, known) for row, config in configs.items()}
    share = _share_of_steps(runs, configs)
    of_each: dict[str, float | None] = {}
    live: list[float] = []
    waiting: list[float] = []
    is_known = True
    for run in runs:
        if run.state in ENDED:
            continue
        seconds = SCORING_SECONDS if run.name in scored else expected[run.row]
        if run.state == RunState.RUNNING:
            of_each[run.name] = _left(run.report, seconds)
        if run.is_live:
            seconds = of_each[run.name]
        if seconds is None:
            is_known = False
        elif run.is_live:
            live.append(seconds)
        else:
            waiting.append(share * seconds)
    if not live or not is_known:
        return of_each, None
    return of_each, until_the_last(live, waiting, len(live))


def _only_scored(runs: Sequence[Run], trainings: Sequence[Training]) -> set[str]:
    """The runs that wait for the training of another run, or will find it finished."""
    names: set[str] = set()
    begun = (RunState.DONE, RunState.RUNNING)
    for training in trainings:
        by_seed: dict[int | None, list[Run]] = defaultdict(list)
        for run in runs if len(training.rows) > 1 else ():
            if run.row in training.rows:
                by_seed[run.seed].append(run)
        for alike in by_seed.values():
            waiting = [run.name for run in alike if run.state == RunState.WAITING]
            has_begun = any(run.state in begun for run in alike)
            names.update(waiting if has_begun else waiting[1:])  # else the first one trains
    return names


def _known_times(runs: Sequence[Run], configs: Mapping[str, Config]) -> list[Timing]:
    """The mean time of each row's runs, for the rows where it is known."""
    whole: list[tuple[Run, float]] = []
    for run in runs:
        seconds = _whole(run)
        if seconds is not None:
            whole.append((run, seconds))
    # Runs without an attempt were copied here, perhaps from a faster machine.
    here = [(run, seconds) for run, seconds in whole if run.attempt]
    taken: dict[str, list[float]] = defaultdict(list)
    for run, seconds in here or whole:
        taken[run.row].append(seconds)
    return [Timing(configs[row], fmean(seconds)) for row, seconds in taken.items()]


def _share_of_steps(runs: Sequence[Run], configs: Mapping[str, Config]) -> float:
    """The mean share of their steps that ended runs took: below 1 if a search pruned trials."""
    shares = [
        run.pruned.step / configs[run.row].training.max_steps if run.pruned else 1.0
        for run in runs
        if run.state in (RunState.DONE, RunState.PRUNED)
    ]
    return fmean(shares or [1.0])


def _whole(run: Run) -> float | None:
    """The seconds that a run took, or will take by its pace in training; None if unknown."""
    progress = run.report
    if not run.is_whole:
        return None
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
