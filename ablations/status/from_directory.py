"""Read the status of a table or a search from the files in its directory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ablations.runs import identity
from ablations.runs.attempts import elapsed, locate, number, read_pruned, read_result
from ablations.runs.lock import drivers
from ablations.runs.process import last_log_lines
from ablations.status.model import Run, Status
from ablations.status.planned import make_status, read_planned
from experiments.run.attempt import Attempt, Failure, read_attempt
from experiments.run.measures import valid_scores
from experiments.run.progress import Progress, RunState, read_progress

_LOG_LINES = 10
_START_SECONDS = 60.0
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
        planned = read_planned(self._directory)
        begun = self._begun(planned.configs)
        runs = [
            self._finished.get(name)
            or (self._read(name) if name in begun else Run(name=name, state=RunState.WAITING))
            for name in planned.configs
        ]
        status = make_status(planned, runs, time.time())
        return replace(status, is_starting=self._is_starting())

    def _begun(self, names: Iterable[str]) -> set[str]:
        """The runs that have a directory, found by one listing of each folder."""
        folders = {(self._directory / name).parent for name in names}
        return {
            str((folder / entry.partition(".attempt-")[0]).relative_to(self._directory))
            for folder in folders
            if folder.is_dir()
            for entry in os.listdir(folder)  # noqa: PTH208 (of many thousand runs)
        }

    def _is_starting(self) -> bool:
        """Whether a driver works on it; of one on another machine, whether it began just now."""
        return any(
            not identity.is_gone(name) if identity.is_local(name) else age < _START_SECONDS
            for name, age in drivers(self._directory)
        )

    def _read(self, name: str) -> Run:
        stem = self._directory / name
        run = _finished(name, stem) or _pruned(name, stem)
        if run is not None:
            self._finished[name] = run
            return run
        return _unfinished(name, locate(stem))


def _finished(name: str, directory: Path) -> Run | None:
    result = read_result(directory)
    if result is None:
        return None
    attempt = read_attempt(directory)
    return Run(
        name=name,
        state=RunState.DONE,
        attempt=attempt.number if attempt else None,
        worker=attempt.worker if attempt else None,
        host=attempt.host if attempt else None,
        devices=attempt.devices if attempt else (),
        ranks=result.devices,
        scores=valid_scores(result),
        seconds=elapsed(directory, result),
        failures=attempt.failures if attempt else (),
    )


def _pruned(name: str, directory: Path) -> Run | None:
    pruned = read_pruned(directory)
    if pruned is None:
        return None
    progress = Progress(stage=RunState.DONE, step=pruned.step)
    scores = {} if pruned.perplexity is None else {"perplexity": pruned.perplexity}
    return Run(name=name, state=RunState.PRUNED, progress=progress, scores=scores)


def _unfinished(name: str, directory: Path) -> Run:
    attempt, progress = read_attempt(directory), read_progress(directory)
    if attempt is None:
        if progress is None:
            return Run(name=name, state=RunState.WAITING)
        state = _state(progress, directory, worker=None)
        heard = progress.updated_at or None
        return Run(name=name, state=state, progress=progress, heard_at=heard)
    fresh = progress is not None and progress.updated_at >= attempt.started_at
    state = _state(progress if fresh else None, directory, attempt.worker)
    if attempt.given_up:
        state = RunState.GIVEN_UP
    return Run(
        name=name,
        state=state,
        attempt=attempt.number,
        worker=attempt.worker,
        host=attempt.host,
        devices=attempt.devices,
        ranks=attempt.ranks,
        # An earlier attempt's progress tells how far it was, not how fast this one is.
        progress=progress if fresh or state != RunState.RUNNING else None,
        heard_at=max(attempt.started_at, progress.updated_at if progress else 0.0),
        failures=_failures(directory, attempt, progress, state),
    )


def _state(progress: Progress | None, directory: Path, worker: str | None) -> RunState:
    """The state of a run without a result, by the ``progress`` of its newest attempt."""
    stage = progress.stage if progress else None
    if stage in _FAILED:
        return RunState.FAILED
    # Another attempt has to follow if the result is unreadable, or its supervisor died.
    unreadable = stage == RunState.DONE and not number(directory)
    if stage == RunState.STOPPED or unreadable or identity.is_gone(worker or ""):
        return RunState.STOPPED
    return RunState.RUNNING


def _failures(
    directory: Path, attempt: Attempt, progress: Progress | None, state: RunState
) -> tuple[Failure, ...]:
    """The recorded failures, and one that is not recorded yet."""
    recorded = attempt.failures
    if state != RunState.FAILED or any(failure.attempt == attempt.number for failure in recorded):
        return recorded
    reason = (progress.message if progress else "") or "no reason was left"
    at = progress.updated_at if progress else attempt.started_at
    lines = tuple(last_log_lines(directory, _LOG_LINES))
    return (*recorded, Failure(attempt=attempt.number, reason=reason, lines=lines, at=at))
