"""Where a cell lives: ``base/seed-1.attempt-3`` while it is under way, ``base/seed-1`` at its end.

The name is the fence. Taking a cell over renames its directory to the next attempt, which the file
system does for one process only, and from then on nothing that an earlier attempt writes by path
can arrive. Finishing renames it to the cell's own name, which works once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.attempt import Attempt, Failure, read_attempt, write_attempt
from experiments.progress import Progress, read_progress, write_progress
from experiments.results import RESULT_FILE

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
    """
    found = newest(stem)
    target = stem.with_name(f"{stem.name}.attempt-{number(found or stem) + 1}")
    try:
        if found is None:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.mkdir()
        elif found == stem and is_done():
            return None
        else:
            found.rename(target)
    except (FileNotFoundError, FileExistsError):
        return None
    return target


def publish(directory: Path, stem: Path) -> bool:
    """Make the attempt in ``directory`` the cell's end; False if it is no longer the newest."""
    try:
        directory.rename(stem)
    except OSError:
        if directory.exists():
            raise
        return False
    return True


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
