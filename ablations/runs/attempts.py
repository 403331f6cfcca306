"""A run's directory: ``base/seed-1.attempt-3`` in progress, ``base/seed-1`` once finished.

The name is the fence. Taking a run over renames its directory to that of the next attempt, which
the file system lets one process do; from then on the paths that an earlier attempt writes to do not
exist. Finishing renames the directory to the run's own name, which works once.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import isfinite
from pathlib import Path

from ablations.runs import identity
from experiments.records.attempt import (
    ATTEMPT_FILE,
    Attempt,
    Failure,
    read_attempt,
    wandb_id,
    write_attempt,
)
from experiments.records.experiment import CONFIG_FILE
from experiments.records.progress import Progress, RunState, read_progress, write_progress
from experiments.records.result import RESULT_FILE, Result, load_result
from transformer.config import from_dict, to_dict
from transformer.errors import InputError
from transformer.files import read_json, rename, write_json

PRUNED_FILE = "pruned.json"
_MOST_KILLS = 10
_ATTEMPT = re.compile(r"\.attempt-(\d+)$")


def newest(stem: Path) -> Path | None:
    """The directory of the run ``stem``: the finished one or its newest attempt."""
    if (stem / RESULT_FILE).exists():
        return stem
    attempts = sorted(stem.parent.glob(f"{stem.name}.attempt-*"), key=number)
    if attempts:
        return attempts[-1]
    return stem if stem.exists() else None


def locate(stem: Path) -> Path:
    """Like :func:`newest`, but ``stem`` itself where there is no directory yet."""
    return newest(stem) or stem


def number(directory: Path) -> int:
    """The number of the attempt in ``directory``; 0 if its name has none."""
    match = _ATTEMPT.search(directory.name)
    return int(match[1]) if match else 0


def take_over(stem: Path) -> Path | None:
    """Begin the next attempt with all files of the one before.

    Returns:
        Its directory; None if another process was first, or the run has ended meanwhile.

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
        elif found == stem and read_ended(stem) is not None:
            return None
        else:
            rename(found, target)
        for lock in target.glob(".lock-*"):  # of earlier attempts: records/ownership.py
            lock.unlink(missing_ok=True)
    except (FileNotFoundError, FileExistsError):
        return None
    return target


def _last_number(directory: Path) -> int:
    """The number of the latest attempt; a finished run has it in a file only."""
    attempt = read_attempt(directory)
    return max(number(directory), attempt.number if attempt else 0)


def publish(directory: Path, stem: Path) -> bool:
    """Make the attempt the run's final directory; False if it is no longer the newest."""
    try:
        rename(directory, stem)
    except OSError:
        if directory.exists():
            raise
        return False
    return True


def next_attempt(directory: Path, name: str, devices: tuple[int | str, ...], ranks: int) -> Attempt:
    """The record of the attempt in ``directory``, with what is known of those before it."""
    worker = identity.own_name()
    attempt = Attempt(
        cell=name,
        number=number(directory),
        worker=worker,
        host=identity.host_of(worker),
        devices=devices,
        ranks=ranks,
        started_at=time.time(),
    )
    before = read_attempt(directory)
    if before is None:
        return attempt
    tracked = wandb_id(directory)  # None if the attempt before ended too early to be tracked
    return replace(
        attempt,
        failures=before.failures,
        wandb_ids=before.wandb_ids if tracked is None else (*before.wandb_ids, tracked),
        kills=before.kills,
        furthest=before.furthest,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruned:
    """The step at which a trial was ended, and its perplexity there; None if not finite."""

    step: int
    perplexity: float | None


def leave_pruned(directory: Path, step: int, perplexity: float) -> None:
    """Record in a trial's directory that it was ended at ``step``, instead of a result."""
    finite = perplexity if isfinite(perplexity) else None
    write_json(directory / PRUNED_FILE, to_dict(Pruned(step=step, perplexity=finite)))


def read_result(directory: Path) -> Result | None:
    """Read the result in ``directory``; None if there is none or, with a warning, a broken one."""
    try:
        return load_result(directory)
    except InputError as error:
        return _leave_out(error)


def read_pruned(directory: Path) -> Pruned | None:
    """Like :func:`read_result`, of a trial that was pruned."""
    path = directory / PRUNED_FILE
    try:
        return from_dict(Pruned, read_json(path), str(path)) if path.is_file() else None
    except InputError as error:
        return _leave_out(error)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """What a run that has ended for good has left: its result, or else where it was pruned.

    ``curve`` is its perplexity on the validation set by step, where that was read too.
    """

    result: Result | None = None
    pruned: Pruned | None = None
    curve: Mapping[int, float] = field(default_factory=dict[int, float])


def read_ended(directory: Path) -> Ended | None:
    """What the run in ``directory`` has left; None if it has not ended for good."""
    result = read_result(directory)
    pruned = read_pruned(directory) if result is None else None
    return None if result is pruned else Ended(result=result, pruned=pruned)


def _leave_out(error: InputError) -> None:
    if isinstance(error.__cause__, FileNotFoundError):
        return  # its directory has just been renamed
    warnings.warn(f"left out, and done again by the next run: {error}", stacklevel=3)


def set_aside_broken(directory: Path) -> list[str]:
    """Rename files of earlier attempts that cannot be read; return their names."""
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
        rename(directory / name, directory / f"{name}.broken")
    return broken


def _read_config(directory: Path) -> object | None:
    """Any JSON will do; whether the configuration is right is checked elsewhere."""
    try:
        return read_json(directory / CONFIG_FILE)
    except InputError:
        return None


def elapsed(directory: Path, result: Result) -> float:
    """Seconds from a run's start to its end; only of training if it took several attempts."""
    attempt = read_attempt(directory)
    if attempt is None or attempt.number > 1:
        return result.train_seconds
    ended = datetime.fromisoformat(result.finished_at).timestamp()
    return max(result.train_seconds, ended - attempt.started_at)


def is_given_up(stem: Path) -> bool:
    """Whether a run has failed so often that it is not tried again."""
    attempt = read_attempt(locate(stem))
    return attempt is not None and attempt.given_up


def clear_failures(stem: Path) -> None:
    """Let a run that was given up be tried again."""
    directory = newest(stem)
    attempt = read_attempt(directory) if directory else None
    if directory and attempt and attempt.given_up:
        write_attempt(directory, replace(attempt, given_up=False, failures=(), kills=0))


def record_failure(
    directory: Path, reason: str, lines: Sequence[str], *, killed: bool, retries: int
) -> bool:
    """Record why the attempt in ``directory`` ended without a result; whether it was the last.

    A kill is usually not the run's fault. Kills count only when several in a row make no progress:
    a run that always exhausts the memory would otherwise be tried forever.
    """
    attempt = read_attempt(directory)
    if attempt is None:
        return False
    attempt = _count_kill(attempt, directory) if killed else replace(attempt, kills=0)
    if not killed or attempt.kills >= _MOST_KILLS:
        failure = Failure(attempt=attempt.number, reason=reason, lines=tuple(lines), at=time.time())
        attempt = replace(attempt, failures=(*attempt.failures, failure))
    final = attempt.kills >= _MOST_KILLS or len(attempt.failures) > retries
    last = read_progress(directory) or Progress(stage=RunState.FAILED)
    with suppress(FileNotFoundError):  # another attempt has just taken the run over
        write_attempt(directory, replace(attempt, given_up=final))
        if final:
            write_progress(directory, replace(last, stage=RunState.FAILED, message=reason))
    return final


def _count_kill(attempt: Attempt, directory: Path) -> Attempt:
    progress = read_progress(directory)
    step = progress.step if progress else 0
    kills = 1 if step > attempt.furthest else attempt.kills + 1
    return replace(attempt, kills=kills, furthest=max(step, attempt.furthest))
