"""Names of processes by which others on the same machine can tell whether they are alive."""

from __future__ import annotations

import functools
import hashlib
import os
import socket
from contextlib import suppress
from pathlib import Path


def own_name() -> str:
    """The name of this process."""
    return name_of(os.getpid())


def name_of(pid: int) -> str:
    """``host:pid:start:machine`` of a process on this machine.

    ``start`` distinguishes it from a later process with the same number; ``machine`` identifies
    where process numbers are comparable: one boot of one host, in one container.
    """
    return f"{socket.gethostname()}:{pid}:{_start(pid)}:{_machine()}"


def host_of(name: str) -> str:
    """The host in a process's name."""
    return name.rsplit(":", 3)[0]


def pid_of(name: str) -> int:
    """The process number in a process's name."""
    return int(name.rsplit(":", 3)[1])


def is_local(name: str) -> bool:
    """Whether that process is, or was, on this machine."""
    parts = name.rsplit(":", 3)
    return len(parts) == 4 and parts[3] == _machine() and parts[1].isdecimal()


def is_gone(name: str) -> bool:
    """Whether that process is known to have ended; never known of one on another machine."""
    return is_local(name) and not (
        is_alive(pid_of(name)) and _start(pid_of(name)) == name.rsplit(":", 3)[2]
    )


def is_alive(pid: int) -> bool:
    """Whether a process on this machine has that number and has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _state(pid) != "Z"  # a zombie


def _fields(pid: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` from the state on; empty where there is no such file."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _state(pid: int) -> str:
    return next(iter(_fields(pid)), "")


def _start(pid: int) -> str:
    fields = _fields(pid)
    return fields[19] if len(fields) > 19 else "0"


@functools.cache
def _machine() -> str:
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
