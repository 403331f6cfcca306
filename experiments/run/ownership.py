"""One process at a time writes to a run's directory, and notices if the directory is removed."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from experiments.run.attempt import read_attempt
from experiments.run.devices import is_first_rank
from experiments.run.experiment import CONFIG_FILE
from transformer.errors import InputError
from transformer.files import make_directory, remove_unfinished

# A run whose process has just been killed may hold its lock for a moment longer.
_LOCK_SECONDS = 10


@contextmanager
def lock_directory(directory: Path, *, make: bool) -> Generator[None]:
    """Keep other processes out of the directory; the ranks of one run share it.

    Args:
        make: create the directory if it is missing

    Raises:
        InputError: if it cannot be made or is in use.
    """
    if not is_first_rank():
        yield
        return
    if make:
        make_directory(directory)
    # A paused earlier attempt may still hold its own lock, which was renamed with the directory.
    attempt = read_attempt(directory)
    lock = ".lock" if attempt is None else f".lock-{attempt.number}"
    try:
        with FileLock(directory / lock, timeout=_LOCK_SECONDS):
            remove_unfinished(directory)
            yield
    except Timeout as error:
        raise InputError(f"{directory} is in use by another process") from error


def check_not_removed(directory: Path) -> None:
    """Check that nobody has removed the run's directory since it was claimed.

    Raises:
        InputError: if somebody has, even if another program has made the directory again.
    """
    if is_first_rank() and not (directory / CONFIG_FILE).is_file():
        raise InputError(
            f"{directory} was removed, or emptied, while the run was writing to it: start it again"
        )


@contextmanager
def explain_removal(directory: Path) -> Generator[None]:
    """Report a missing file as a removed directory where that is the cause."""
    try:
        yield
    except (FileNotFoundError, InputError):
        check_not_removed(directory)
        raise
