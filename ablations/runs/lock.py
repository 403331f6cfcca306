"""Allow one driver at a time for a directory."""

from __future__ import annotations

import fcntl
import re
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TextIO

from ablations.runs import identity
from transformer.errors import InputError
from transformer.files import make_directory

_LOCKS = ".driver*.lock"


@dataclass(frozen=True, slots=True)
class Shard:
    """Every ``count``-th run, from the ``number``-th on, counted from 1."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard that the user wrote as ``2/8``."""
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        number, count = (int(part) for part in found.groups()) if found else (0, 0)
        if not 1 <= number <= count:
            raise InputError(f"--shard is {text}, but must be like 2/8, the second of eight")
        return cls(number, count)

    @property
    def family(self) -> str:
        """What the names of the locks have in common that may be held together."""
        return f"-of-{self.count}.lock" if self.count > 1 else ".driver.lock"


WHOLE = Shard()


@contextmanager
def lock_runs(directory: Path, shard: Shard) -> Generator[None]:
    """Keep other drivers off these runs until the end of the block, or of this process.

    The directory is made if it is missing. The lock is the operating system's, which releases it
    however the process ends; its file names the process and since when it has it.
    """
    make_directory(directory)
    name = f".driver-{shard.number}{shard.family}" if shard.count > 1 else shard.family
    with ExitStack() as stack:
        own = stack.enter_context(_held(directory / name))
        for other in directory.glob(_LOCKS):
            if not other.name.endswith(shard.family):
                with _held(other):  # nobody else does; a later one finds ours
                    pass
        own.truncate(0)
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        own.write(f"{since} {identity.own_name()}\n")
        own.flush()
        yield


def drivers(directory: Path) -> list[tuple[str, float]]:
    """The processes that drive the runs of ``directory`` or did so last, by their names in
    :mod:`ablations.runs.identity`, and the seconds since they began.
    """
    found = (_holder(path.read_text("utf-8", "replace")) for path in directory.glob(_LOCKS))
    return [(name, time.time() - since.timestamp()) for since, name in filter(None, found)]


@contextmanager
def _held(path: Path) -> Generator[TextIO]:
    with path.open("a+", encoding="utf-8", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            who = "another process"
            if holder := _holder(file.read()):
                since, name = holder
                pid, host = identity.pid_of(name), identity.host_of(name)
                who = f"process {pid} on {host} since {since:%F %T}"
            raise InputError(
                f"{path.parent} is being worked on by {who}: wait until it ends, or stop it there"
            ) from error
        yield file


def _holder(text: str) -> tuple[datetime, str] | None:
    """Since when which process has had a lock, by its file; None if that cannot be read."""
    try:
        since, name = text.split()
        identity.pid_of(name)
        return datetime.fromisoformat(since).astimezone(), name
    except (ValueError, IndexError):
        return None
