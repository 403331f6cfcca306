"""One driver at a time for the runs of a directory, or one for each shard of them."""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from ablations.runs import identity
from transformer.errors import InputError
from transformer.files import make_directory, read_json, write_json

_SHARD = re.compile(r"(\d+)/(\d+)")


@dataclass(frozen=True, slots=True)
class Shard:
    """Every ``count``-th run, from the ``number``-th on, counted from 1."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard that the user wrote as ``2/8``.

        Raises:
            InputError: if it is not that.
        """
        found = _SHARD.fullmatch(text)
        number, count = (int(part) for part in found.groups()) if found else (0, 0)
        if not 1 <= number <= count:
            raise InputError(f"--shard is {text}, but must be like 2/8, the second of eight")
        return cls(number, count)

    @property
    def family(self) -> str:
        """What the names of the locks have in common that may be held together."""
        return f"-of-{self.count}.lock" if self.count > 1 else ".driver.lock"

    @property
    def lock(self) -> str:
        """The name of its lock."""
        return f".driver-{self.number}{self.family}" if self.count > 1 else self.family


WHOLE = Shard()


@contextmanager
def lock_runs(directory: Path, shard: Shard) -> Generator[None]:
    """Keep other drivers off these runs until the end of the block, or of this process.

    The directory is made if it is missing. The lock is the operating system's, which releases it
    however the process ends.

    Raises:
        InputError: if another driver has some of the runs; it says which process, and since when.
    """
    make_directory(directory)
    own = directory / shard.lock
    with ExitStack() as stack:
        stack.enter_context(_held(own))
        for other in directory.glob(".driver*.lock"):
            if not other.name.endswith(shard.family):
                with _held(other):  # nobody else does; a later one finds ours
                    pass
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        write_json(own.with_suffix(".json"), {"process": identity.own_name(), "since": since})
        yield


def drivers(directory: Path) -> list[tuple[str, float]]:
    """The processes that drive the runs of ``directory`` or did so last, by their names in
    :mod:`ablations.runs.identity`, and the seconds since they began.
    """
    found = [_holder(path) for path in directory.glob(".driver*.lock")]
    return [(name, time.time() - since.timestamp()) for name, since in found if since is not None]


@contextmanager
def _held(path: Path) -> Generator[None]:
    try:
        with FileLock(path, timeout=0):
            yield
    except Timeout as error:
        name, since = _holder(path)
        who = "another process"
        if since is not None:
            who = f"process {identity.pid_of(name)} on {identity.host_of(name)} since {since:%F %T}"
        raise InputError(
            f"{path.parent} is being worked on by {who}: wait until it ends, or stop it there"
        ) from error


def _holder(lock: Path) -> tuple[str, datetime | None]:
    """The name of the process that held the lock last, and since when; None if not known."""
    try:
        found = read_json(lock.with_suffix(".json"))
        name, since = str(found["process"]), datetime.fromisoformat(str(found["since"]))
        identity.pid_of(name)
    except (InputError, KeyError, ValueError, IndexError):
        return "", None
    return name, since
