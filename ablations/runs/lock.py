"""Locks that keep drivers out of each other's way."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TextIO

from experiments.records.processes import is_running, own_name
from experiments.records.progress import printable
from transformer.errors import InputError
from transformer.files import locked, make_directory, read_text

_LOCKS = ".driver*.lock"
_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Shard:
    """Every ``count``-th run, beginning with run ``number``, counted from 1."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard that the user gave as, for example, ``2/8``."""
        parts = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if parts is not None:
            number, count = int(parts[1]), int(parts[2])
            if 1 <= number <= count:
                return cls(number, count)
        raise InputError(f"--shard is {text}, but must be like 2/8, the second of eight")


WHOLE = Shard()


@contextmanager
def lock_runs(directory: Path, shard: Shard) -> Generator[None]:
    """Keep other drivers off these runs until the end of the block.

    The directory is made if it is missing. The operating system releases the lock however the
    process ends; what the lock file says is only for messages.
    """
    make_directory(directory)
    # Only shards of the same count may hold locks together: their names end alike.
    if shard.count > 1:
        family = f"-of-{shard.count}.lock"
        name = f".driver-{shard.number}{family}"
    else:
        family = name = ".driver.lock"
    with ExitStack() as stack:
        own = stack.enter_context(_held(directory / name))
        for other in directory.glob(_LOCKS):
            if not other.name.endswith(family):
                # Check that it is free: whoever takes it later finds ours. The check is a shared
                # lock, as other shards check too.
                with _held(other, shared=True):
                    pass
        own.truncate(0)
        who = f"process {os.getpid()} on {socket.gethostname()}"
        own.write(f"{who} since {datetime.now():%F %T}\n{own_name()}")
        own.flush()
        yield


def is_driven(directory: Path) -> bool:
    """Whether a driver works on these runs; one elsewhere counts for a minute after its start."""
    for path in directory.glob(_LOCKS):
        try:
            running, written = is_running(read_text(path).rpartition("\n")[2]), path.stat().st_mtime
        except (InputError, OSError):  # removed meanwhile, or not a driver's
            continue
        if running or (running is None and time.time() - written < _START_SECONDS):
            return True
    return False


@contextmanager
def _held(path: Path, *, shared: bool = False) -> Generator[TextIO]:
    with ExitStack() as stack:
        try:
            file = stack.enter_context(locked(path, seconds=0, shared=shared))
        except BlockingIOError as error:
            who = printable(read_text(path).partition("\n")[0].strip())
            raise InputError(
                f"{path.parent} is being worked on by {who}: wait until it ends, or stop it there"
            ) from error
        yield file
