"""Where a cell lives: ``base/seed-1.attempt-3`` while it is under way, ``base/seed-1`` at its end.

The name is the fence. Taking a cell over renames its directory to the next attempt, which the file
system does for one process only, and from then on nothing that an earlier attempt writes by path
can arrive. Finishing renames it to the cell's own name, which works once.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from math import isfinite
from pathlib import Path

from experiments.run.attempt import ATTEMPT_FILE, Attempt, Failure, read_attempt, write_attempt
from experiments.run.experiment import CONFIG_FILE
from experiments.run.files import read_json, write_json
from experiments.run.progress import Progress, read_progress, write_progress
from experiments.run.results import RESULT_FILE, Result, load_result
from transformer.config import from_dict, to_dict
from transformer.errors import InputError

PRUNED_FILE = "pruned.json"
_MOST_KILLS = 10
_ATTEMPT = re.compile(r"\.attempt-(\d+)$")


def newest(stem: Path) -> Path | None:
    """The directory of the cell whose name is ``stem``: finished, or its newest attempt."""
    if (stem / RESULT_FILE).exists():
        return stem
    attempts = sorted(stem.parent.glob(f"{stem.name}.attempt-*"), key=number)
    if attempts:
        return attempts[-1]
    return stem if stem.exists() else None


def locate(stem: Path) -> Path:
    """The same, or ``stem`` itself where there is nothing yet."""
    return newest(stem) or stem


def number(directory: Path) -> int:
    """Which attempt a directory is; 0 for one that has no number."""
    match = _ATTEMPT.search(directory.name)
    return int(match[1]) if match else 0


def take_over(stem: Path, is_done: Callable[[], bool]) -> Path | None:
    """Begin the next attempt, with all that the one before left; its directory.

    None if another process was first, or the cell ``is_done`` meanwhile.

    Raises:
        InputError: if a file is in the place of the row's folder.
    """
    found = newest(stem)
    target = stem.with_name(f"{stem.name}.attempt-{_last_number(found or stem) + 1}")
    if found is None:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise InputError(
                f"{target.parent} cannot be made, as a file is in its place: remove that file"
            ) from error
    try:
        if found is None:
            target.mkdir()
        elif found == stem and is_done():
            return None
        else:
            found.rename(target)
        for lock in target.glob(
            ".lock-*"
        ):  # each attempt has its own: experiments/run/ownership.py
            lock.unlink(missing_ok=True)
    except (FileNotFoundError, FileExistsError):
        return None
    return target


def _last_number(directory: Path) -> int:
    """The number of the newest attempt, which the directory of a finished cell has in a file."""
    attempt = read_attempt(directory)
    return max(number(directory), attempt.number if attempt else 0)


def publish(directory: Path, stem: Path) -> bool:
    """Make the attempt in ``directory`` the cell's end; False if it is no longer the newest."""
    try:
        directory.rename(stem)
    except OSError:
        if directory.exists():
            raise
        return False
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruned:
    """Where a search's trial was ended, and its perplexity there; None where it is not finite."""

    step: int
    perplexity: float | None


def leave_pruned(directory: Path, step: int, perplexity: float) -> None:
    """Leave in a trial's directory that it was ended at ``step``, in place of a result."""
    finite = perplexity if isfinite(perplexity) else None
    write_json(directory / PRUNED_FILE, to_dict(Pruned(step=step, perplexity=finite)))


def read_result(directory: Path) -> Result | None:
    """The result in ``directory``; None where there is none, or, with a warning, a broken one."""
    try:
        return load_result(directory)
    except InputError as error:
        return _leave_out(error)


def read_pruned(directory: Path) -> Pruned | None:
    """The same of a trial that was ended early."""
    path = directory / PRUNED_FILE
    try:
        return from_dict(Pruned, read_json(path), str(path)) if path.is_file() else None
    except InputError as error:
        return _leave_out(error)


def _leave_out(error: InputError) -> None:
    if isinstance(error.__cause__, FileNotFoundError):
        return  # its directory has just got another name
    warnings.warn(f"left out, and done again by the next run: {error}", stacklevel=3)


def set_aside_broken(directory: Path) -> list[str]:
    """Rename what an attempt has taken over and cannot read; the names of those files."""
    readers: dict[str, Callable[[Path], object | None]] = {
        ATTEMPT_FILE: read_attempt,
        CONFIG_FILE: _read_config,
        RESULT_FILE: read_result,
        PRUNED_FILE: read_pruned,
    }
    broken = [
        name
        for name, read in readers.items()
        if (directory / name).exists() and read(directory) is None
    ]
    for name in broken:
        (directory / name).replace(directory / f"{name}.broken")
    return broken


def _read_config(directory: Path) -> object | None:
    """Whatever JSON is there; whether it is the cell's is for others to judge."""
    try:
        return read_json(directory / CONFIG_FILE)
    except InputError:
        return None


def elapsed(directory: Path, result: Result) -> float:
    """Seconds from a run's start to its end; of a run in several attempts, those of training."""
    attempt = read_attempt(directory)
    if attempt is None or attempt.number > 1:
        return result.train_seconds
    ended = datetime.fromisoformat(result.finished_at).timestamp()
    return max(result.train_seconds, ended - attempt.started_at)


def forgive(stem: Path) -> None:
    """Have a cell that was given up tried again."""
    directory = newest(stem)
    attempt = read_attempt(directory) if directory else None
    if directory and attempt and attempt.given_up:
        write_attempt(directory, replace(attempt, given_up=False, failures=(), kills=0))


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why an attempt failed, the last lines of its log, and whether the cell is given up."""

    reason: str
    lines: tuple[str, ...]
    is_final: bool


def note_failure(
    directory: Path, reason: str, lines: Sequence[str], *, killed: bool, retries: int
) -> Verdict:
    """Write down why the attempt in ``directory`` ended without a result.

    A kill says nothing of the run, so it counts only where one follows the other and none comes
    further than those before: a row that the system kills for its memory would go on for ever.
    """
    found, lines = read_attempt(directory), tuple(lines)
    if found is None:
        return Verdict(reason, lines, is_final=False)
    attempt = _count_kill(found, directory) if killed else replace(found, kills=0)
    if not killed or attempt.kills >= _MOST_KILLS:
        failure = Failure(attempt=attempt.number, reason=reason, lines=lines, at=time.time())
        attempt = replace(attempt, failures=(*attempt.failures, failure))
    final = attempt.kills >= _MOST_KILLS or len(attempt.failures) > retries
    with suppress(FileNotFoundError):  # another attempt has just taken the cell over
        write_attempt(directory, replace(attempt, given_up=final))
    if final:
        last = read_progress(directory) or Progress(stage="failed")
        with suppress(FileNotFoundError):
            write_progress(directory, replace(last, stage="failed", message=reason))
    return Verdict(reason, lines, final)


def _count_kill(attempt: Attempt, directory: Path) -> Attempt:
    progress = read_progress(directory)
    step = progress.step if progress else 0
    kills = 1 if step > attempt.furthest else attempt.kills + 1
    return replace(attempt, kills=kills, furthest=max(step, attempt.furthest))
