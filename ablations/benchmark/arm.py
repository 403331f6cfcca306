"""The processes that are compared, each on a core of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ablations.runner.machine import gpus
from transformer.errors import InputError

_END_SECONDS = 20.0
_POLL_SECONDS = 0.1
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Place:
    """A core, and the GPU if there is one, which another place may share."""

    core: int
    gpu: int | str | None


def places() -> tuple[Place, Place]:
    """Places for two processes: two cores where there are so many, and two GPUs.

    Raises:
        InputError: where the system cannot hold a process to one core.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise InputError("this benchmark needs Linux, which can hold a process to one core")
    cores, devices = sorted(os.sched_getaffinity(0)), gpus() or [None]
    return Place(cores[0], devices[0]), Place(cores[1 % len(cores)], devices[1 % len(devices)])


class Arm:
    """A Python module in a process, with all that it starts, at a place.

    Args:
        name: what it is called when it fails
        module: as ``python -m`` takes it
        arguments: of the command line
        place: where it runs
        environment: further variables
        log: gets what it says
    """

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        place: Place,
        environment: Mapping[str, str],
        log: Path,
    ) -> None:
        self._name, self._log = name, log
        devices = {} if place.gpu is None else {"CUDA_VISIBLE_DEVICES": str(place.gpu)}
        with log.open("wb") as said, _held_to(place.core):
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                env={**os.environ, **environment, **devices},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C is ours to pass on
            )

    def is_over(self) -> bool:
        """Whether it has come to its end.

        Raises:
            ChildProcessError: if that is not a good one.
        """
        code = self._process.poll()
        if code:
            lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
            raise ChildProcessError(f"{self._name} ended with exit code {code}: {last.strip()}")
        return code is not None

    def end(self) -> None:
        """End it with all that it started, whatever is lost by that."""
        deadline = time.monotonic() + _END_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            self._process.send_signal(signal.SIGTERM)  # the second makes a fleet kill its runs
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_POLL_SECONDS)
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def carry_out(starts: Sequence[Callable[[], Arm]], look: Callable[[], None]) -> None:
    """Start all, and look until they have ended; none is left if something goes wrong."""
    with ExitStack() as stack:
        arms: list[Arm] = []
        for start in starts:
            arms.append(start())
            stack.callback(arms[-1].end)
        while arms:
            look()
            time.sleep(_LOOK_SECONDS)
            arms = [arm for arm in arms if not arm.is_over()]
        look()


@contextmanager
def _held_to(core: int) -> Generator[None]:
    """Start processes on that core only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
