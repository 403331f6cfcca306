"""How a worker ends its runs: after a checkpoint, and by force where that takes too long."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

from ablations.runner.interrupt import Interrupt
from ablations.runner.running import Run

# A run that has not written its checkpoint by then goes on from the one before.
_GRACE_SECONDS = 20.0


class Stop:
    """The first signal that asks for an end lets each run write a checkpoint, and the second ends
    them at once.

    Args:
        interrupt: takes the signals over
        note: tells a person something in a line of its own
    """

    def __init__(self, interrupt: Interrupt, note: Callable[[str], None]) -> None:
        self._interrupt, self._note = interrupt, note
        self._heard = 0
        self._kill_at: float | None = None

    def attend(self, running: Sequence[Run]) -> None:
        """Pass on what has been received since, and end by force what is too late."""
        received = len(self._interrupt.received)
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
