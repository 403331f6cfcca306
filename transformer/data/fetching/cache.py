"""The folder of downloads and prepared corpora: where it is, and who writes in it."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import AcquireReturnProxy, BaseFileLock, FileLock, Timeout

from transformer.errors import InputError

_NOT_OURS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST})


def cache_directory() -> Path:
    """Where downloads and prepared corpora are kept: ``DATA_CACHE``, or the user's cache."""
    if configured := os.environ.get("DATA_CACHE"):
        return Path(configured).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "attention-is-all-you-need"


@contextmanager
def hold(path: Path, doing: str) -> Generator[None]:
    """Work at ``path`` in the cache, alone among all processes; the folder above it is made.

    A process that finds another at work says so and waits.

    Args:
        doing: what is done at it, such as "fetches corpus.tgz"

    Raises:
        InputError: if the cache cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _acquire(FileLock(f"{path}.lock"), doing):
            yield
    except OSError as error:
        if error.errno not in _NOT_OURS or not _is_cached(error.filename):
            raise
        raise InputError(
            f"{error.filename} cannot be written ({error.strerror}): "
            "set DATA_CACHE to a folder of your own"
        ) from error


def _acquire(lock: BaseFileLock, doing: str) -> AcquireReturnProxy[BaseFileLock]:
    try:
        return lock.acquire(blocking=False)
    except Timeout:
        print(f"waiting for another process that {doing}", file=sys.stderr, flush=True)
        return lock.acquire()


def _is_cached(name: object) -> bool:
    return isinstance(name, str) and Path(name).is_relative_to(cache_directory())


def is_as_noted(path: Path, what: str) -> bool:
    """Whether ``path`` is what it was when :func:`note` was told ``what`` it is."""
    written = _note(path)
    return (
        path.exists()
        and written.exists()
        and written.read_text(encoding="utf-8") == _fingerprint(path, what)
    )


def note(path: Path, what: str) -> None:
    """Remember, beside it, ``what`` the file is, so that it need not be read to know."""
    _note(path).write_text(_fingerprint(path, what), encoding="utf-8")


def _note(path: Path) -> Path:
    return path.with_name(f"{path.name}.verified")


def _fingerprint(path: Path, what: str) -> str:
    found = path.stat()
    return f"{what} {found.st_size} {found.st_mtime_ns}\n"
