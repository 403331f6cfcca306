"""The status of a table or a search, from files."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from ablations.costs.speed import Timing, predict, until_the_last
from ablations.runs.attempts import attempt_number, elapsed, locate, read_ended
from ablations.runs.lock import is_driven, is_running
from ablations.search.search import is_search, load_search
from ablations.tables.plan import load_plan
from experiments.records.attempt import Attempt, Failure, read_attempt
from experiments.records.progress import SILENT_SECONDS, Progress, RunState, read_progress
from experiments.records.result import valid_scores
from transformer.config import Config

ENDED = (RunState.DONE, RunState.PRUNED, RunState.GIVEN_UP)
_FAILED = (RunState.FAILED, RunState.DIVERGED, RunState.REFUSED, RunState.BLOCKED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A row of a table with a seed, or a trial of a search; what is unknown is None.

    ``state`` is ``running``, ``failed``, ``given up``, ``stopped``, ``waiting``, ``done`` or
    ``pruned``. ``attempt`` is the newest one and ``progress`` its last report;
    ``silent_seconds`` have passed since, if that is too long for a run in progress. ``scores``,
    those of the validation set, and ``seconds``, its duration, are a finished run's.
    """

    name: str
    state: RunState
    attempt: Attempt | None = None
    progress: Progress | None = None
    silent_seconds: float | None = None
    scores: dict[str, float] = field(default_factory=dict)
    seconds: float | None = None
    seconds_left: float | None = None

    @property
    def row(self) -> str:
        """The name of a table's row; empty for a trial."""
        return self.name.rpartition("/")[0]

    @property
    def is_live(self) -> bool:
        """Whether it is in progress and reports."""
        return self.state == RunState.RUNNING and self.silent_seconds is None

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Those of its attempts, oldest first."""
        return self.attempt.failures if self.attempt else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """All runs in their order; ``status --json`` prints these fields, and those of a run.

    ``seconds_left`` is until the last run ends with as many at a time as now; None if unknown.
    ``is_driven`` says that a driver is at work, even if no run has begun.
    """

    title: str
    runs: tuple[Run, ...]
    seconds_left: float | None = None
    is_driven: bool = False

    @property
    def counts(self) -> Mapping[RunState, int]:
        """The number of runs in each state that occurs."""
        return Counter(run.state for run in self.runs)

    @property
    def is_over(self) -> bool:
        """Whether every run has ended."""
        return all(run.state in ENDED for run in self.runs)


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
        if is_search(self._directory):
            search = load_search(self._directory)
            title, names = f"search {search.space} at scale {search.scale}", search.names
            configs = {"": search.base}
        else:
            plan = load_plan(self._directory)
            title, names = f"{plan.table} at scale {plan.scale}", tuple(map(str, plan.cells))
            configs = plan.configs
        begun = self._begun(names)
        runs = [
            self._read(name) if name in begun else Run(name=name, state=RunState.WAITING)
            for name in names
        ]
        # A search's driver also trains its best trials again, in a directory below.
        driven = any(map(is_driven, (self._directory, self._directory.absolute().parent)))
        if driven:  # which continues what was stopped
            runs = [
                replace(x, state=RunState.WAITING) if x.state == RunState.STOPPED else x
                for x in runs
            ]
        runs, left = _with_time_left(runs, configs)
        return Status(title=title, runs=tuple(runs), seconds_left=left, is_driven=driven)

    def _begun(self, names: Iterable[str]) -> set[str]:
        """The runs that have a directory, found by one listing of each folder."""
        folders = {name.rpartition("/")[:2] for name in names}
        return {
            f"{row}{slash}{entry.partition('.attempt-')[0]}"
            for row, slash in folders
            if (self._directory / row).is_dir()
            for entry in os.listdir(self._directory / row)  # noqa: PTH208 (of many thousand runs)
        }

    def _read(self, name: str) -> Run:
        run = self._finished.get(name) or _ended(name, self._directory / name)
        if run is None:
            return _unfinished(name, locate(self._directory / name))
        self._finished[name] = run
        return run


def _ended(name: str, directory: Path) -> Run | None:
    """A run that is done or was pruned."""
    ended = read_ended(directory)
    if ended is None:
        return None
    if (result := ended.result) is not None:
        return Run(
            name=name,
            state=RunState.DONE,
            attempt=read_attempt(directory),
            scores=valid_scores(result),
            seconds=elapsed(directory, result),
        )
    assert ended.pruned is not None
    step, perplexity = ended.pruned.step, ended.pruned.perplexity
    return Run(
        name=name,
        state=RunState.PRUNED,
        progress=Progress(stage=RunState.DONE, step=step),
        scores={} if perplexity is None else {"perplexity": perplexity},
    )


def _unfinished(name: str, directory: Path) -> Run:
    attempt, progress = read_attempt(directory), read_progress(directory)
    began = attempt.started_at if attempt else 0.0
    if progress is not None and progress.updated_at < began:
        progress = None  # of an earlier attempt
    state = _state(progress, directory, attempt)
    silent = time.time() - (progress.updated_at if progress else began)
    return Run(
        name=name,
        state=state,
        attempt=attempt,
        progress=progress,
        silent_seconds=silent if state == RunState.RUNNING and silent > SILENT_SECONDS else None,
    )


def _state(progress: Progress | None, directory: Path, attempt: Attempt | None) -> RunState:
    """The state of a run without a result, by the ``progress`` of its newest attempt."""
    if progress is None and attempt is None:
        return RunState.WAITING
    if attempt is not None and attempt.given_up:
        return RunState.GIVEN_UP
    stage = progress.stage if progress else None
    if stage in _FAILED:
        return RunState.FAILED
    # Another attempt has to follow if the result is unreadable, or its supervisor died.
    unreadable = stage == RunState.DONE and not attempt_number(directory)
    is_gone = attempt is not None and is_running(attempt.worker) is False
    if stage == RunState.STOPPED or unreadable or is_gone:
        return RunState.STOPPED
    return RunState.RUNNING


def _with_time_left(
    runs: Sequence[Run], configs: Mapping[str, Config]
) -> tuple[list[Run], float | None]:
    """The runs with the time that each still takes, and that of all, by the ``configs`` of rows."""
    taken: dict[str, list[float]] = defaultdict(list)
    whole = [(run, seconds) for run in runs if (seconds := _whole(run)) is not None]
    # Runs without an attempt were copied here, perhaps from a faster machine.
    for run, seconds in [pair for pair in whole if pair[0].attempt] or whole:
        taken[run.row].append(seconds)
    known = [Timing(configs[row], fmean(seconds)) for row, seconds in taken.items()]
    expected = {row: predict(config, known) for row, config in configs.items()}
    runs = [
        replace(run, seconds_left=_left(run.progress, expected[run.row]))
        if run.state == RunState.RUNNING
        else run
        for run in runs
    ]
    live = [run.seconds_left for run in runs if run.is_live]
    waiting = [expected[x.row] for x in runs if x.state not in ENDED and not x.is_live]
    left, later = ([seconds for seconds in x if seconds is not None] for x in (live, waiting))
    if not live or len(left) + len(later) < len(live) + len(waiting):
        return runs, None
    share = _share_of_steps(runs, configs)
    return runs, until_the_last(left, [share * seconds for seconds in later], len(live))


def _share_of_steps(runs: Sequence[Run], configs: Mapping[str, Config]) -> float:
    """The share of their steps that the runs which ended took, as trials of a search are pruned."""
    shares = [
        run.progress.step / configs[run.row].training.max_steps if run.progress else 1.0
        for run in runs
        if run.state in (RunState.DONE, RunState.PRUNED)
    ]
    return fmean(shares or [1.0])


def _whole(run: Run) -> float | None:
    """How long a run takes from its start to its end; None if that is not known yet."""
    progress = run.progress
    if run.state != RunState.RUNNING or progress is None or progress.stage != RunState.TRAIN:
        return run.seconds
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
