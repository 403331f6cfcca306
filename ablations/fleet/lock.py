"""One coordinator at a time in a table's directory."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from experiments.files import read_json, write_json
from transformer.errors import InputError

LOCK_FILE = ".coordinator.lock"
HOLDER_FILE = ".coordinator.json"


@contextmanager
def coordinate(directory: Path) -> Generator[None]:
    """Hold the directory; the system lets go of it when the process ends, however it ends.

    Raises:
        InputError: if another process holds it; the message names that process.
    """
    directory.mkdir(parents=True, exist_ok=True)
    lock = FileLock(directory / LOCK_FILE)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        who = holder(directory) or "another process"
        raise InputError(f"{directory} is being run by {who}: wait for it, or stop it") from None
    try:
        write_json(
            directory / HOLDER_FILE,
            {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()},
        )
        yield
    finally:
        (directory / HOLDER_FILE).unlink(missing_ok=True)
        lock.release()


def holder(directory: Path) -> str | None:
    """Who runs the directory's table, as far as this machine can tell; None if nobody does."""
    try:
        found = read_json(directory / HOLDER_FILE)
    except InputError:
        return None
    if found.get("host") == socket.gethostname() and not is_alive(int(found["pid"])):
        return None
    return f"process {found.get('pid')} on {found.get('host')}"


def is_alive(pid: int) -> bool:
    """Whether a process of this machine has that id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
