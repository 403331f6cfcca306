"""Commands in processes of their own, forked from one that has imported torch already.

Such a process has its own signals, streams, memory and exit code, as one from a shell has, and
starts in a moment.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import runpy
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_PRELOADED = [
    "experiments.run",
    "experiments.evaluate.trained",
    "experiments.catalog.find",
    "wandb",
]
_PATIENCE_SECONDS = 240.0
_POLL_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended and what it wrote."""

    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        """Of standard error."""
        return self.stderr.splitlines()


@dataclass(slots=True)
class Running:
    """A command under way; ``stdin`` is the end that its parent holds, if it holds one."""

    process: ForkServerProcess
    streams: Path
    stdin: int | None

    def close_stdin(self) -> None:
        """Close its input, as if its parent was gone."""
        if self.stdin is not None:
            os.close(self.stdin)
        self.stdin = None

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds or the process is over."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self.process.is_alive() and not holds():
            assert time.monotonic() < deadline, self.finish(signal.SIGKILL)
            time.sleep(_POLL_SECONDS)

    def finish(self, number: signal.Signals | None = None) -> Finished:
        """Send a signal, if one is given, and wait for the end."""
        assert self.process.pid is not None
        if number is not None and self.process.is_alive():
            os.kill(self.process.pid, number)
        self.process.join(_PATIENCE_SECONDS)
        assert self.process.exitcode is not None, "it hangs"
        self.close_stdin()
        out, err = ((self.streams / n).read_text(encoding="utf-8") for n in ("out", "err"))
        return Finished(self.process.exitcode, out, err)


def start(
    streams: Path,
    arguments: Sequence[str | Path],
    *,
    environment: Mapping[str, str],
    stdin: bytes | None = b"",
    largest_file: int | None = None,
    spare_memory: int | None = None,
) -> Running:
    """Start ``python -m ARGUMENTS``.

    Args:
        streams: a folder for what it reads and writes
        environment: in place of this process's own
        stdin: what it reads; None for a pipe that stays open until it ends
        largest_file: bytes after which a write fails, as on a full disk; None for no bound
        spare_memory: bytes that it may ask for besides those it has; None for no bound
    """
    streams.mkdir(parents=True, exist_ok=True)
    source, held = streams / "in", None
    source.unlink(missing_ok=True)
    if stdin is None:
        os.mkfifo(source)
        held = os.open(source, os.O_RDWR)
    else:
        source.write_bytes(stdin)
    texts = [str(argument) for argument in arguments]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    process = context.Process(
        target=_become, args=(texts, str(streams), dict(environment), largest_file, spare_memory)
    )
    process.start()
    return Running(process, streams, held)


def _become(
    arguments: list[str],
    streams: str,
    environment: dict[str, str],
    largest_file: int | None,
    spare_memory: int | None,
) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the driver's tests start a server without
    os.environ.clear()
    os.environ.update(environment)
    for number, (name, mode) in enumerate((("in", "rb"), ("out", "wb"), ("err", "wb"))):
        with (Path(streams) / name).open(mode) as stream:
            os.dup2(stream.fileno(), number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (
        open(number, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
        for number in (1, 2)
    )
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    if spare_memory is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + spare_memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    sys.argv = ["", *arguments[1:]]
    sys.modules.pop(arguments[0], None)  # as in an interpreter of its own
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
