"""Whose a run's directory is: one process's at a time, and which left something half-written."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from experiments.run.attempt import read_attempt
from experiments.run.devices import is_first_rank
from experiments.run.experiment import CONFIG_FILE, Experiment, refuse_another
from experiments.run.files import make_directory, remove_unfinished
from transformer.errors import InputError

# A run whose process has just been killed may hold its lock for a moment longer.
_LOCK_SECONDS = 10


@contextmanager
def own(directory: Path, experiment: Experiment, *, make: bool) -> Generator[None]:
    """Claim the directory and keep other processes out; ranks of one run share it.

    Args:
        make: the directory where it is missing

    Raises:
        InputError: if it cannot be made, is in use or belongs to another configuration.
    """
    if not is_first_rank():
        yield
        return
    refuse_another(directory, experiment)
    if make:
        make_directory(directory)
    # An earlier attempt may be paused and hold its lock, which went with the directory.
    attempt = read_attempt(directory)
    lock = ".lock" if attempt is None else f".lock-{attempt.number}"
    try:
        with FileLock(directory / lock, timeout=_LOCK_SECONDS):
            remove_unfinished(directory)
            yield
    except Timeout as error:
        raise InputError(f"{directory} is in use by another process") from error


def refuse_removed(directory: Path) -> None:
    """Check that nobody has removed the run's directory since it was claimed.

    Raises:
        InputError: if somebody has, even where another program has made it anew.
    """
    if is_first_rank() and not (directory / CONFIG_FILE).is_file():
        raise InputError(
            f"{directory} was removed, or emptied, while the run was writing to it: start it again"
        )


@contextmanager
def explaining_removal(directory: Path) -> Generator[None]:
    """Say that the directory was removed where what is in it is missed because of that."""
    try:
        yield
    except (FileNotFoundError, InputError):
        refuse_removed(directory)
        raise
