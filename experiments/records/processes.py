"""Unique names of processes."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import socket
from contextlib import suppress
from pathlib import Path

from transformer.errors import InputError
from transformer.files import read_text

PROCESS_FILE = ".process"


def process_of(directory: Path) -> str:
    """The name of the process of the newest attempt at a run; empty if it is not known."""
    try:
        return read_text(directory / PROCESS_FILE).strip()
    except (InputError, OSError):
        return ""


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
    """Whether that process has not ended; None if that is unknown, as on another machine."""
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
