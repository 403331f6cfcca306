"""Signals that ask for an end: the first for one after a checkpoint, the second for one now."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType

from experiments.command_line import STOP_SIGNALS


class Interrupt:
    """Takes over Ctrl-C, SIGTERM, a closed terminal and SLURM's warning while it is entered.

    Main thread only.
    """

    def __init__(self) -> None:
        self.received: list[signal.Signals] = []

    @property
    def first(self) -> signal.Signals | None:
        """The signal that asked first, if one did."""
        return self.received[0] if self.received else None

    def __enter__(self) -> Interrupt:
        self._before = [(number, signal.signal(number, self._note)) for number in STOP_SIGNALS]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(signal.Signals(number))
