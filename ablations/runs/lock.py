"""Names of processes, and locks of drivers."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import socket
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TextIO

from experiments.records.progress import printable
from transformer.errors import InputError
from transformer.files import locked, make_directory

_LOCKS = ".driver*.lock"
_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Shard:
    """Every ``count``-th run, from the ``number``-th on, counted from 1."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard that the user wrote as ``2/8``."""
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        number, count = (int(part) for part in found.groups()) if found else (0, 0)
        if not 1 <= number <= count:
            raise InputError(f"--shard is {text}, but must be like 2/8, the second of eight")
        return cls(number, count)


WHOLE = Shard()


@contextmanager
def lock_runs(directory: Path, shard: Shard) -> Generator[None]:
    """Keep other drivers off these runs until the end of the block.

    The directory is made if it is missing. The operating system releases the lock however the
    process ends; the file's content is for messages.
    """
    make_directory(directory)
    # Locks may be held together only by the shards of one division: those with the same ending.
    family = f"-of-{shard.count}.lock" if shard.count > 1 else ".driver.lock"
    name = f".driver-{shard.number}{family}" if shard.count > 1 else family
    with ExitStack() as stack:
        own = stack.enter_context(_held(directory / name))
        for other in directory.glob(_LOCKS):
            if not other.name.endswith(family):
                # It is free; who takes it later finds ours. Shared, as other shards look too.
                with _held(other, shared=True):
                    pass
        own.truncate(0)
        who = f"process {os.getpid()} on {socket.gethostname()}"
        own.write(f"{who} since {datetime.now():%F %T}\n{own_name()}")
        own.flush()
        yield


def is_driven(directory: Path) -> bool:
    """Whether a driver works on these runs; one of another machine counts for a minute."""
    for path in directory.glob(_LOCKS):
        running = is_running(path.read_text("utf-8", "replace").rpartition("\n")[2])
        if running or (running is None and time.time() - path.stat().st_mtime < _START_SECONDS):
            return True
    return False


@contextmanager
def _held(path: Path, *, shared: bool = False) -> Generator[TextIO]:
    with ExitStack() as stack:
        try:
            file = stack.enter_context(locked(path, seconds=0, shared=shared))
        except BlockingIOError as error:
            who = printable(path.read_text("utf-8", "replace").partition("\n")[0].strip())
            raise InputError(
                f"{path.parent} is being worked on by {who}: wait until it ends, or stop it there"
            ) from error
        yield file


def name_of(pid: int) -> str:
    """``host:pid:start:machine`` of a process on this machine.

    ``start`` distinguishes it from a later process with the same number; ``machine`` identifies
    where process numbers are comparable: one boot of one host, in one container.
    """
    return f"{socket.gethostname()}:{pid}:{_look(pid)[1]}:{_machine()}"


def own_name() -> str:
    """The name of this process."""
    return name_of(os.getpid())


def is_running(name: str) -> bool | None:
    """Whether that process has not ended; None if it is unknown, on another machine."""
    pid = pid_of(name)
    if pid is None or not name.endswith(f":{_machine()}"):
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    state, start = _look(pid)
    return state != "Z" and start == name.split(":")[-2]  # a zombie has ended


def pid_of(name: str) -> int | None:
    """The process number in a process's name; None if there is none in it."""
    found = re.fullmatch(r".*:([1-9][0-9]{0,8}):[^:]*:[^:]*", name, re.DOTALL)
    return int(found[1]) if found else None


def _look(pid: int) -> tuple[str, str]:
    """The state of a process and when it started; unknown where there is no ``/proc``."""
    with suppress(OSError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = text.rpartition(")")[2].split()
        return fields[0], fields[19]
    return "", "0"


@functools.cache
def _machine() -> str:
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
