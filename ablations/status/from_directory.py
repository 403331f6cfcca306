"""How far a fleet is, by the files in its directory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from ablations.runner import identity
from ablations.runner.attempts import elapsed, locate, number, read_pruned, read_result
from ablations.runner.process import LOG_FILE
from ablations.status.contents import read_contents
from ablations.status.ending import expect
from ablations.status.model import Run, State, Status
from experiments.run.attempt import Attempt, Failure, read_attempt
from experiments.run.progress import Progress, read_progress

_LOG_LINES = 10
# What a process that has ended leaves as its last stage.
_LEFT: Mapping[str, State] = {
    "failed": "failed",
    "diverged": "failed",
    "refused": "failed",
    "stopped": "stopped",
}


class DirectoryReader:
    """Reads a directory again and again; what has finished is read once.

    Args:
        directory: of a table or a search
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._finished: dict[str, Run] = {}

    def read(self) -> Status:
        """The status now.

        Raises:
            InputError: if the directory is no fleet's.
        """
        contents = read_contents(self._directory)
        runs = [self._finished.get(name) or self._read(name) for name in contents.cells]
        return expect(contents, runs, time.time())

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
        state="done",
        attempt=attempt.number if attempt else None,
        worker=attempt.worker if attempt else None,
        host=attempt.host if attempt else None,
        devices=attempt.devices if attempt else (),
        ranks=result.devices,
        perplexity=result.perplexity,
        bleu=result.bleu,
        seconds=elapsed(directory, result),
        failures=attempt.failures if attempt else (),
    )


def _pruned(name: str, directory: Path) -> Run | None:
    pruned = read_pruned(directory)
    if pruned is None:
        return None
    progress = Progress(stage="done", step=pruned.step)
    return Run(name=name, state="pruned", progress=progress, perplexity=pruned.perplexity)


def _unfinished(name: str, directory: Path) -> Run:
    attempt, progress = read_attempt(directory), read_progress(directory)
    if attempt is None:
        if progress is None:
            return Run(name=name, state="waiting")
        state = _state(progress, directory, worker=None)
        heard = progress.updated_at or None
        return Run(name=name, state=state, progress=progress, heard_at=heard)
    fresh = progress is not None and progress.updated_at >= attempt.started_at
    state = _state(progress if fresh else None, directory, attempt.worker)
    if attempt.given_up:
        state = "given up"
    return Run(
        name=name,
        state=state,
        attempt=attempt.number,
        worker=attempt.worker,
        host=attempt.host,
        devices=attempt.devices,
        ranks=attempt.ranks,
        # What the attempt before left says how far it came, not how fast this one is.
        progress=progress if fresh or state != "running" else None,
        heard_at=max(attempt.started_at, progress.updated_at if progress else 0.0),
        failures=_failures(directory, attempt, progress, state),
    )


def _state(progress: Progress | None, directory: Path, worker: str | None) -> State:
    """What a run without a result does, by the ``progress`` of its newest attempt."""
    left = progress and _LEFT.get(progress.stage)
    # What ended without a result that can be read waits for another attempt, and so does what a
    # worker left that ended without a word.
    over = bool(progress and progress.stage == "done" and not number(directory))
    return left or ("stopped" if over or identity.is_gone(worker or "") else "running")


def _failures(
    directory: Path, attempt: Attempt, progress: Progress | None, state: State
) -> tuple[Failure, ...]:
    """Those that are noted, and one that its worker has not come to note yet."""
    noted = attempt.failures
    if state != "failed" or any(failure.attempt == attempt.number for failure in noted):
        return noted
    reason = (progress.message if progress else "") or "no reason was left"
    at = progress.updated_at if progress else attempt.started_at
    lines = _last_lines(directory / LOG_FILE)
    return (*noted, Failure(attempt=attempt.number, reason=reason, lines=lines, at=at))


def _last_lines(path: Path) -> tuple[str, ...]:
    try:
        with path.open("rb") as log:
            text = (line.decode(errors="replace").rstrip() for line in log)
            return tuple(deque(filter(None, text), maxlen=_LOG_LINES))
    except OSError:
        return ()
