"""A run's directory: ``base/seed-1.attempt-3`` in progress, ``base/seed-1`` once finished.

The name keeps attempts apart. Taking a run over renames its directory for the next attempt, which
only one process can do; from then on the paths that earlier attempts write to no longer exist.
Finishing renames it to the run's own name, which works only once.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from pathlib import Path

from ablations.files import REPLACED, replaced_name
from experiments.records.attempt import ATTEMPT_FILE, Attempt, Failure, read_attempt, write_attempt
from experiments.records.experiment import CONFIG_FILE, Experiment, load_experiment
from experiments.records.ownership import changed_settings
from experiments.records.processes import is_running, own_name
from experiments.records.progress import FINAL, Progress, RunState, read_progress, write_progress
from experiments.records.result import PRUNED_FILE, RESULT_FILE
from experiments.records.run import Pruned, attempt_number, locate, read_run
from transformer.config import to_dict
from transformer.errors import InputError
from transformer.files import read_json, rename, within, write_json

_MOST_KILLS = 10


def refuse_foreign(stem: Path) -> None:
    """Check that nothing but a run has the path of the run ``stem``."""
    if stem.parent.is_file():
        raise InputError(
            f"{stem.parent} cannot be made, as a file is in its place: remove that file"
        )
    files = (CONFIG_FILE, ATTEMPT_FILE, RESULT_FILE, PRUNED_FILE)
    is_run = any((stem / name).exists() for name in files) and locate(stem) == stem
    if os.path.lexists(stem) and not is_run:
        raise InputError(f"{stem} has a run's name but is not a run: rename or remove it")


def is_elsewhere(stem: Path) -> bool:
    """Whether another driver works on the run ``stem``: one that is alive here, or whose run has
    just reported from another machine.
    """
    run = read_run(stem)
    if run.is_published or run.attempt is None or run.attempt.worker == own_name():
        return False
    if run.state != RunState.RUNNING or (run.report and run.report.stage in FINAL):
        return False
    return run.is_live or is_running(run.attempt.worker) is True


def take_over(stem: Path) -> Path | None:
    """Begin the next attempt with all files of the one before.

    Returns:
        The attempt's directory; None if another process was first, or the run has ended.
    """
    current = locate(stem)
    attempt = read_attempt(current) if current == stem else None  # the name has no number
    last = attempt.number if attempt else attempt_number(current)
    target = stem.with_name(f"{stem.name}.attempt-{last + 1}")
    try:
        if not current.exists():
            target.mkdir(parents=True)
        elif current == stem and read_run(stem).has_ended:
            return None
        else:
            rename(current, target)
        for lock in target.glob(".lock-*"):  # of earlier attempts: records/ownership.py
            lock.unlink(missing_ok=True)
    except (FileNotFoundError, FileExistsError, NotADirectoryError):
        return None
    return target


def next_replaced(root: Path, name: str, lines: Iterable[str] = ()) -> str:
    """The name below ``root`` that keeps an old run when it is trained again.

    Args:
        lines: names in a collection, which may include such old runs
    """
    folder = root / REPLACED / Path(name).parent
    there = [f"{REPLACED}/{Path(name).parent}/{path.name}" for path in folder.glob("*")]
    return replaced_name(name, (*there, *lines))


def has_other_settings(directory: Path, experiment: Experiment) -> bool:
    """Whether an attempt began with settings that differ from those of ``experiment``."""
    if not (directory / CONFIG_FILE).exists():
        return False
    return bool(changed_settings(load_experiment(directory).config, experiment.config))


def start_over(root: Path, name: str, directory: Path) -> Path:
    """Move an attempt with other settings aside, and begin the next one without its files.

    The next one is made first, so that no two attempts ever have the same name.
    """
    number = attempt_number(directory) + 1
    target = directory.with_name(f"{Path(name).name}.attempt-{number}")
    target.mkdir()
    aside = within(root, next_replaced(root, name))
    aside.parent.mkdir(parents=True, exist_ok=True)
    rename(directory, aside)
    return target


def next_attempt(
    directory: Path, name: str, driver: str, devices: tuple[int | str, ...], ranks: int
) -> Attempt:
    """The record of the attempt in ``directory``, with the failures and kills of earlier ones."""
    before = read_attempt(directory)
    if before is None:
        before = Attempt(cell=name, number=0, worker=driver, host="", started_at=0.0)
    return replace(
        before,
        cell=name,
        number=attempt_number(directory),
        worker=driver,
        host=socket.gethostname(),
        devices=devices,
        ranks=ranks,
        started_at=time.time(),
        given_up=False,
    )


def leave_pruned(directory: Path, step: int, perplexity: float) -> None:
    """Record in a trial's directory that it was pruned at ``step``."""
    finite = perplexity if isfinite(perplexity) else None
    write_json(directory / PRUNED_FILE, to_dict(Pruned(step=step, perplexity=finite)))


def set_aside_broken(directory: Path) -> list[str]:
    """Rename the unreadable files of a run that has not ended, and return their names."""
    broken: list[str] = []
    if not read_run(directory).is_at_end:
        broken = [name for name in (RESULT_FILE, PRUNED_FILE) if (directory / name).exists()]
    for name in (ATTEMPT_FILE, CONFIG_FILE):
        try:
            read_json(directory / name)
        except InputError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                broken.append(name)
    for name in broken:
        rename(directory / name, directory / f"{name}.broken")
    return broken


def clear_failures(stem: Path) -> None:
    """Allow a run that was given up to be tried again."""
    directory = locate(stem)
    attempt = read_attempt(directory)
    if attempt and attempt.given_up:
        write_attempt(directory, replace(attempt, given_up=False, failures=(), kills=0))


def record_failure(
    directory: Path, reason: str, lines: Sequence[str], *, killed: bool, retries: int
) -> bool:
    """Record why the attempt in ``directory`` failed; return whether the run is now given up.

    A kill or a stop is usually not the run's fault. They count only after many in a row without
    progress, such as when a run always exhausts the memory.
    """
    attempt = read_attempt(directory)
    if attempt is None:
        return False
    progress = read_progress(directory) or Progress(stage=RunState.FAILED)
    moved = progress.step > attempt.furthest
    if not killed:
        kills = 0
    elif moved:
        kills = 1
    else:
        kills = attempt.kills + 1
    attempt = replace(attempt, kills=kills, furthest=max(progress.step, attempt.furthest))
    if not killed or kills >= _MOST_KILLS:
        failure = Failure(attempt=attempt.number, reason=reason, lines=tuple(lines), at=time.time())
        attempt = replace(attempt, failures=(*attempt.failures, failure))
    final = kills >= _MOST_KILLS or len(attempt.failures) > retries
    with suppress(FileNotFoundError):  # another attempt has just taken the run over
        write_attempt(directory, replace(attempt, given_up=final))
        if final or killed:  # a killed process has not recorded its end
            stage = RunState.FAILED if final else RunState.STOPPED
            write_progress(directory, replace(progress, stage=stage, message=reason))
    return final
