"""How a worker ends early: the first signal lets runs write a checkpoint, the second kills them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from types import FrameType

from ablations.runner.active_run import ActiveRun
from experiments.command_line import stop_signals

# A run that has not written its checkpoint by then resumes from the one before.
_GRACE_SECONDS = 20.0


class Shutdown:
    """Receives the signals that ask for an end, while it is entered, and ends the runs.

    Main thread only.

    Args:
        note: prints a line for the user
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._received: list[signal.Signals] = []
        self._handled = 0
        self._kill_at: float | None = None

    @property
    def signal(self) -> signal.Signals | None:
        """The first signal received, if any."""
        return self._received[0] if self._received else None

    def __enter__(self) -> Shutdown:
        self._handlers = {number: signal.signal(number, self._receive) for number in stop_signals()}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(signal.Signals(number))

    def update(self, runs: Sequence[ActiveRun]) -> None:
        """Act on signals received since the last call, and kill runs whose time is up."""
        received = len(self._received)
        if received > self._handled:
            self._handled = received
            if received == 1:
                self._note("stopping after a checkpoint (again to kill)")
                self.stop(runs)
            else:
                self._note("killing the runs")
                self._kill_at = time.monotonic()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            for run in runs:
                run.send(signal.SIGKILL)

    def stop(self, runs: Sequence[ActiveRun]) -> None:
        """Ask the runs to end after a checkpoint, and set the time by which they must."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + _GRACE_SECONDS
        for run in runs:
            run.send(signal.SIGTERM)
