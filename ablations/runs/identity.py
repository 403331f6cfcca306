"""Names of processes that tell whether they still run."""

from __future__ import annotations

import functools
import hashlib
import os
import socket
from contextlib import suppress
from pathlib import Path


def name_of(pid: int) -> str:
    """``host:pid:start:machine`` of a process on this machine.

    ``start`` distinguishes it from a later process with the same number; ``machine`` identifies
    where process numbers are comparable: one boot of one host, in one container.
    """
    return f"{socket.gethostname()}:{pid}:{_look(pid)[1]}:{_machine()}"


def own_name() -> str:
    """The name of this process."""
    return name_of(os.getpid())


def host_of(name: str) -> str:
    """The host in a process's name."""
    return name.rsplit(":", 3)[0]


def pid_of(name: str) -> int:
    """The process number in a process's name."""
    return int(name.rsplit(":", 3)[1])


def is_running(name: str) -> bool | None:
    """Whether that process has not ended; None if it is not of this machine, which cannot tell."""
    _, *parts = name.rsplit(":", 3)
    if len(parts) < 3 or parts[2] != _machine() or not parts[0].isdecimal():
        return None
    try:
        os.kill(int(parts[0]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    state, start = _look(int(parts[0]))
    return state != "Z" and start == parts[1]  # a zombie has ended


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
