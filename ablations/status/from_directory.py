"""Read the status of a directory."""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import fmean

from ablations.costs.timing import Timing, predict, until_the_last
from ablations.files import CONFIRM, SEARCH_FILE
from ablations.runs import identity
from ablations.runs.attempts import elapsed, locate, number, read_ended
from ablations.runs.lock import drivers
from ablations.search.rungs import count_passed
from ablations.search.search import load_search
from ablations.status.model import ENDED, Run, Status
from ablations.tables.plan import load_plan
from experiments.records.attempt import Attempt, read_attempt
from experiments.records.progress import Progress, RunState, read_progress
from experiments.records.result import valid_scores
from transformer.config import Config

_START_SECONDS = 60.0
_SILENT_SECONDS = 60.0  # runs report each second
_FAILED = (RunState.FAILED, RunState.DIVERGED, RunState.REFUSED)


class DirectoryReader:
    """Reads a directory repeatedly, but finished runs only once.

    Args:
        directory: of a table or a search
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._finished: dict[str, Run] = {}

    def read(self) -> Status:
        """The status now.

        Raises:
            InputError: if the directory is not a table's or a search's.
        """
        configs: Mapping[str, Config | None]
        if (self._directory / SEARCH_FILE).is_file():
            search = load_search(self._directory)
            title, names = f"search {search.space} at scale {search.scale}", search.names
            configs, rungs = {"": None}, search.rungs  # trials are still to be sampled
        else:
            plan = load_plan(self._directory)
            title, names = f"{plan.table} at scale {plan.scale}", [*map(str, plan.cells)]
            configs, rungs = plan.configs, ()
        now, begun = time.time(), self._begun(names)
        runs = [
            self._finished.get(name)
            or (self._read(name, now) if name in begun else Run(name=name, state=RunState.WAITING))
            for name in names
        ]
        passed = count_passed(rungs, map(_end, runs))
        runs, left = _with_time_left(runs, configs)
        return Status(
            title=title,
            at=now,
            runs=tuple(runs),
            seconds_left=left,
            is_driven=_is_driven(self._directory),
            passed=passed,
        )

    def _begun(self, names: Iterable[str]) -> set[str]:
        """The runs that have a directory, found by one listing of each folder."""
        folders = {(self._directory / name).parent for name in names}
        return {
            str((folder / entry.partition(".attempt-")[0]).relative_to(self._directory))
            for folder in folders
            if folder.is_dir()
            for entry in os.listdir(folder)  # noqa: PTH208 (of many thousand runs)
        }

    def _read(self, name: str, now: float) -> Run:
        stem = self._directory / name
        run = _ended(name, stem)
        if run is None:
            return _unfinished(name, locate(stem), now)
        self._finished[name] = run
        return run


def _is_driven(directory: Path) -> bool:
    """Whether a driver works on it; of one on another machine, whether it began just now.

    A search's driver also trains its best trials again.
    """
    whole = directory.absolute()
    is_part = whole.name == CONFIRM and (whole.parent / SEARCH_FILE).is_file()
    found = chain(drivers(directory), drivers(whole.parent) if is_part else ())
    return any(
        age < _START_SECONDS if (running := identity.is_running(name)) is None else running
        for name, age in found
    )


def _ended(name: str, directory: Path) -> Run | None:
    """A run that is done or was pruned."""
    ended = read_ended(directory)
    if ended is None:
        return None
    if (result := ended.result) is not None:
        attempt = read_attempt(directory)
        return Run(
            name=name,
            state=RunState.DONE,
            attempt=attempt,
            scores=valid_scores(result),
            seconds=elapsed(directory, result),
            failures=attempt.failures if attempt else (),
        )
    pruned = ended.pruned
    assert pruned is not None
    progress = Progress(stage=RunState.DONE, step=pruned.step)
    scores = {} if pruned.perplexity is None else {"perplexity": pruned.perplexity}
    return Run(name=name, state=RunState.PRUNED, progress=progress, scores=scores)


def _unfinished(name: str, directory: Path, now: float) -> Run:
    attempt, progress = read_attempt(directory), read_progress(directory)
    if attempt is None and progress is None:
        return Run(name=name, state=RunState.WAITING)
    reported, began = progress.updated_at if progress else 0.0, attempt.started_at if attempt else 0
    fresh = progress if reported >= began else None
    state = _state(fresh, directory, attempt)
    heard = max(began, reported) or None
    silent = now - heard if heard and state == RunState.RUNNING else 0.0
    return Run(
        name=name,
        state=state,
        attempt=attempt,
        # An earlier attempt's progress tells how far it was, not how fast this one is.
        progress=fresh if state == RunState.RUNNING else progress,
        heard_at=heard,
        silent_seconds=silent if silent > _SILENT_SECONDS else None,
        failures=attempt.failures if attempt else (),
    )


def _state(progress: Progress | None, directory: Path, attempt: Attempt | None) -> RunState:
    """The state of a run without a result, by the ``progress`` of its newest attempt."""
    if attempt is not None and attempt.given_up:
        return RunState.GIVEN_UP
    stage = progress.stage if progress else None
    if stage in _FAILED:
        return RunState.FAILED
    # Another attempt has to follow if the result is unreadable, or its supervisor died.
    unreadable = stage == RunState.DONE and not number(directory)
    is_gone = attempt is not None and identity.is_running(attempt.worker) is False
    if stage == RunState.STOPPED or unreadable or is_gone:
        return RunState.STOPPED
    return RunState.RUNNING


def _end(run: Run) -> tuple[int, bool]:
    """The step that a trial has reached, and whether it ended there early."""
    step = run.progress.step if run.progress else 0
    return (sys.maxsize if run.state == RunState.DONE else step), run.state == RunState.PRUNED


def _with_time_left(
    runs: Sequence[Run], configs: Mapping[str, Config | None]
) -> tuple[list[Run], float | None]:
    """The runs with the time that each still takes, and that of all, None if not known.

    Args:
        configs: of each row; None for trials, which take as long as the others on average
    """
    taken: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        if (whole := _whole(run)) is not None:
            taken[run.row].append(whole)
    known = [Timing(x, fmean(taken[row])) for row, x in configs.items() if x and row in taken]
    mean = fmean(chain(*taken.values())) if taken else None
    expected = {row: predict(x, known) if x else mean for row, x in configs.items()}
    runs = [replace(run, seconds_left=_left(run, expected[run.row])) for run in runs]
    live = [run.seconds_left for run in runs if run.is_live]
    waiting = [expected[x.row] for x in runs if x.state not in ENDED and not x.is_live]
    left, later = ([seconds for seconds in x if seconds is not None] for x in (live, waiting))
    if not live or len(left) + len(later) < len(live) + len(waiting):
        return runs, None
    return runs, until_the_last(left, sorted(later, reverse=True), len(live))


def _whole(run: Run) -> float | None:
    """How long a run takes from its start to its end; None if it cannot be told yet."""
    if run.state == RunState.DONE:
        return run.seconds
    progress = run.progress
    if run.state != RunState.RUNNING or progress is None or progress.seconds_left is None:
        return None
    rest = progress.max_steps - progress.step
    if progress.stage != RunState.TRAIN or rest <= 0:
        return None
    return progress.seconds_left * progress.max_steps / rest


def _left(run: Run, expected: float | None) -> float | None:
    if run.state != RunState.RUNNING:
        return None
    progress = run.progress
    if progress is None or progress.stage == RunState.PREPARE:
        return expected
    if progress.seconds_left is not None or progress.stage == RunState.EVALUATE:
        return progress.seconds_left or 0.0
    share = progress.step / max(1, progress.max_steps)
    return None if expected is None else expected * (1 - share)
