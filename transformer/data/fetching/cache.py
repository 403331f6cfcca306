"""The cache of downloads and prepared corpora: its place, its locks, room, and checksums."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from transformer.errors import InputError
from transformer.formats import size

_NOT_WRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST})


def cache_directory() -> Path:
    """Where downloads and prepared corpora are kept: ``DATA_CACHE``, or the user's cache."""
    if configured := os.environ.get("DATA_CACHE"):
        return Path(configured).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "attention-is-all-you-need"


@contextmanager
def exclusive(path: Path, doing: str) -> Generator[None]:
    """Hold the lock on ``path`` in the cache; create its parent folder.

    A process that has to wait for another one says so.

    Args:
        doing: what is done with it, such as "fetches corpus.tgz"

    Raises:
        InputError: if the cache cannot be written.
    """
    lock = FileLock(f"{path}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            print(f"waiting for another process that {doing}", file=sys.stderr, flush=True)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()
    except OSError as error:
        name = error.filename
        in_cache = isinstance(name, str) and Path(name).is_relative_to(cache_directory())
        if error.errno not in _NOT_WRITABLE or not in_cache:
            raise
        raise InputError(
            f"{name} cannot be written ({error.strerror}): set DATA_CACHE to a folder of your own"
        ) from error


def check_space(path: Path, needed: int, what: str) -> None:
    """Check that the disk has room for ``needed`` bytes at ``path``.

    Raises:
        InputError: if it has not, naming both amounts.
    """
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise InputError(
            f"{what} needs {size(needed)} in {path.parent}, where {size(free)} are free: "
            "make room, or set DATA_CACHE to another disk"
        )


def sha256_of(path: Path) -> str:
    """The checksum of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_sha256(expected: str, found: str, origin: Path) -> None:
    """Check a file's checksum against the declared one.

    Raises:
        InputError: if they differ, naming both and the size, which shows a truncated file.
    """
    if found != expected:
        raise InputError(
            f"{origin} is not the declared file: expected sha256 {expected}, found {found} "
            f"({origin.stat().st_size} bytes)"
        )


def is_verified(path: Path, content: str) -> bool:
    """Whether ``path`` was marked as ``content`` and has kept its size and date since."""
    mark = _mark_of(path)
    return (
        path.exists()
        and mark.exists()
        and mark.read_text(encoding="utf-8") == _fingerprint(path, content)
    )


def mark_verified(path: Path, content: str) -> None:
    """Record in a file next to ``path`` that it is ``content``, so that it need not be reread."""
    _mark_of(path).write_text(_fingerprint(path, content), encoding="utf-8")


def _mark_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.verified")


def _fingerprint(path: Path, content: str) -> str:
    found = path.stat()
    return f"{content} {found.st_size} {found.st_mtime_ns}\n"
