"""The cache of downloads and prepared text."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from transformer.errors import InputError
from transformer.files import expand_user, locked, making
from transformer.formats import size


def cache_directory() -> Path:
    """The folder of downloads and prepared corpora: ``DATA_CACHE``, or the user's cache."""
    if configured := os.environ.get("DATA_CACHE"):
        return expand_user(configured)
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expand_user(home) / "attention-is-all-you-need"


@contextmanager
def exclusive(path: Path, doing: str) -> Generator[None]:
    """Hold the lock on ``path`` in the cache, and say so if another process holds it.

    Args:
        doing: the work, for the message, such as "fetches corpus.tgz"
    """
    lock = path.with_name(f"{path.name}.lock")
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(locked(lock, seconds=0))
            except BlockingIOError:
                print(f"waiting for another process that {doing}", file=sys.stderr, flush=True)
                stack.enter_context(locked(lock))
        except InputError:
            if not path.exists():  # else there is nothing to write
                raise
        except OSError as error:
            if not path.exists():  # as in a cache that others filled
                raise InputError(
                    f"{path.parent} cannot be written ({error.strerror}): "
                    "set DATA_CACHE to a folder of your own"
                ) from error
        yield


def write_once(path: Path, write: Callable[[Path], object]) -> Path:
    """Return ``path``, a file or a folder, and have ``write`` make it unless it exists."""
    with exclusive(path, f"writes {path.name}"):
        if not path.exists():
            with making(path) as part:
                write(part)
    return path


def check_space(folder: Path, needed: int, what: str) -> None:
    """Check that the disk has room for ``needed`` bytes in ``folder``."""
    if (free := shutil.disk_usage(folder).free) < needed:
        raise InputError(
            f"{what} needs {size(needed)} in {folder}, where {size(free)} are free: "
            "make room, or set DATA_CACHE to another disk"
        )


def sha256_of(path: Path) -> str:
    """The checksum of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_sha256(path: Path, expected: str, origin: Path) -> None:
    """Check a file, which came from ``origin``, against its declared checksum."""
    if (found := sha256_of(path)) != expected:
        raise InputError(
            f"{origin} is not the declared file: expected sha256 {expected}, found {found} "
            f"({path.stat().st_size} bytes)"
        )
