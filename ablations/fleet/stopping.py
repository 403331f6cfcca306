"""How a worker ends its runs: after a checkpoint, and by force where that takes too long."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType

from ablations.fleet.running import Run

# SLURM sends SIGTERM before it takes a node away, or SIGUSR1 where a job asks for that.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
# A run that has not written its checkpoint by then goes on from the one before.
_GRACE_SECONDS = 25.0


class Stop:
    """Takes over what asks for an end while it is entered: Ctrl-C, SIGTERM, a closed terminal and
    SLURM's warning. The first lets each run write a checkpoint, the second ends them at once.

    Main thread only.

    Args:
        note: tells a person something in a line of its own
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._received: list[signal.Signals] = []
        self._heard = 0
        self._kill_at: float | None = None

    @property
    def signal(self) -> signal.Signals | None:
        """The one that asked first, if one did."""
        return self._received[0] if self._received else None

    def __enter__(self) -> Stop:
        self._before = [(number, signal.signal(number, self._receive)) for number in _SIGNALS]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def attend(self, running: Sequence[Run]) -> None:
        """Pass on what has been received since, and end by force what is too late."""
        received = len(self._received)
        if received > self._heard:
            again = received > 1
            self._note(
                "killing the runs" if again else "stopping after a checkpoint (again to kill)"
            )
            self.ask(running)
            if again:
                self._kill_at = time.monotonic()
            self._heard = received
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._send(running, signal.SIGKILL)

    def ask(self, running: Sequence[Run]) -> None:
        """Have the runs end after a checkpoint; they have so long."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + _GRACE_SECONDS
        self._send(running, signal.SIGTERM)

    def _send(self, running: Sequence[Run], number: signal.Signals) -> None:
        for run in running:
            run.child.send(number)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(signal.Signals(number))
