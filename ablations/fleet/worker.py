"""Runs the cells of a plan, several at a time, each in a process of its own.

It knows the queue and the runs' directories, and nothing of how a report looks.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ablations.costs.timing import Timing, work
from ablations.fleet.child import Child, Start, end_orphan, start_child
from ablations.fleet.display import Display, Snapshot
from ablations.fleet.interrupt import Interrupt
from ablations.fleet.machine import Slot
from ablations.fleet.queue import Queue
from ablations.fleet.watch import look
from ablations.plan import Plan
from ablations.table import Cell
from experiments.experiment import claim
from experiments.progress import Progress, read_progress, write_progress
from experiments.results import Result, load_result
from transformer.errors import InputError

_POLL_SECONDS = 0.1
_LOG_LINES = 10
_GRACE_SECONDS = 30.0


@dataclass(slots=True)
class Outcome:
    """How a call ended: each cell that crashed with its last words, and the signal that stopped
    the call, if one did.
    """

    failed: dict[Cell, str] = field(default_factory=dict[Cell, str])
    signal: signal.Signals | None = None


def load_results(plan: Plan, root: Path) -> dict[Cell, Result]:
    """The finished cells of the plan.

    Raises:
        InputError: if a result file cannot be read.
    """
    found = {cell: load_result(cell.directory(root)) for cell in plan.cells}
    return {cell: result for cell, result in found.items() if result is not None}


class Execution:
    """One coordinator's work on the cells of a plan.

    Args:
        plan: what is run; all its cells count for the display.
        cells: those of them that this call is to finish.
        root: the directory, which the caller holds by :func:`ablations.fleet.lock.coordinate`.
        queue: who runs what.
        slots: the places to run at.
        display: who is told.
        start: starts the process of a run whose directory is claimed.
    """

    def __init__(
        self,
        plan: Plan,
        cells: Sequence[Cell],
        root: Path,
        *,
        queue: Queue,
        slots: Sequence[Slot],
        display: Display,
        start: Start,
    ) -> None:
        self._plan, self._root, self._start = plan, root, start
        self._queue, self._slots, self._display = queue, slots, display
        self._experiments = {cell: plan.experiment(cell) for cell in plan.cells}
        self._configs = {cell: run.config for cell, run in self._experiments.items()}
        self._cells = sorted(cells, key=lambda cell: -work(self._configs[cell]))
        self._results: dict[Cell, Result] = {}
        self._timings: dict[Cell, Timing] = {}
        self._running: dict[Cell, Child] = {}
        self._outcome = Outcome()
        self._interrupt = Interrupt()
        self._bad_input: InputError | None = None

    def run(self) -> Outcome:
        """Run until every cell has a result or failed, or a signal comes.

        Raises:
            InputError: if a run refuses its input; all rows share it, so the table stops.
        """
        for cell in self._plan.cells:
            if end_orphan(cell, self._root):
                self._display.note(f"{cell}: ended the process that an earlier call left behind")
        self._reconcile()
        with self._interrupt, self._display:
            try:
                self._loop()
            except BaseException:
                self._stop_all()
                raise
        if self._bad_input:
            raise self._bad_input
        self._outcome.signal = self._interrupt.first
        return self._outcome

    def _loop(self) -> None:
        heard = 0
        while True:
            if len(self._interrupt.received) > heard:
                heard = len(self._interrupt.received)
                self._pass_on(again=heard > 1)
            if not self._ending:
                self._fill_slots()
            if not self._running:
                return
            for child in list(self._running.values()):
                self._collect(child)
            self._display.update(self._snapshot)
            time.sleep(_POLL_SECONDS)

    @property
    def _ending(self) -> bool:
        """Whether nothing more is started."""
        return bool(self._interrupt.received) or self._bad_input is not None

    def _missing(self) -> list[Cell]:
        ended = self._results.keys() | self._outcome.failed.keys()
        return [cell for cell in self._cells if cell not in ended]

    def _reconcile(self) -> None:
        self._results = load_results(self._plan, self._root)
        for cell, result in self._results.items():
            self._timings.setdefault(cell, Timing(self._configs[cell], result.train_seconds))
        self._queue.reconcile(self._missing(), self._results, self._running.keys())

    def _fill_slots(self) -> None:
        used = [child.slot for child in self._running.values()]
        free = list(self._slots)
        for slot in used:
            free.remove(slot)
        for slot in free:
            cell = self._queue.take()
            if cell is None:
                return
            directory = cell.directory(self._root)
            try:
                claim(directory, self._experiments[cell])
                self._running[cell] = start_child(cell, self._root, slot, self._start)
            except InputError as error:
                self._queue.fail(cell, str(error))
                self._refuse(error)
                return
            self._display.started(cell)

    def _collect(self, child: Child) -> None:
        ending = child.ending()
        if ending is None:
            return
        cell = child.cell
        del self._running[cell]
        result = load_result(child.directory)  # the truth, however the process ended
        if result is not None:
            self._timings[cell] = Timing(self._configs[cell], child.elapsed)
            self._queue.finish(cell, result)
            self._display.finished(cell, result, child.elapsed)
        elif ending == "bad input":
            words = (child.last_lines(1) or ["it refused its input"])[0]
            self._queue.fail(cell, words)
            self._refuse(InputError(f"{cell}: {words}"))
        elif self._ending:
            self._queue.fail(cell, "stopped")
            kept = " after a checkpoint" if ending == "stopped" else ""
            self._display.note(f"{cell}: stopped{kept}")
        else:
            self._fail(child, "it left no result" if ending == "finished" else None)
        self._reconcile()

    def _fail(self, child: Child, reason: str | None) -> None:
        lines = child.last_lines(_LOG_LINES)
        reason = reason or child.describe_exit()
        words = f"{reason}: {lines[-1]}" if lines else reason
        last = read_progress(child.directory) or Progress(stage="failed")
        write_progress(child.directory, replace(last, stage="failed", message=words))
        self._outcome.failed[child.cell] = words
        self._queue.fail(child.cell, words)
        self._display.failed(child.cell, reason, lines)

    def _refuse(self, error: InputError) -> None:
        if self._bad_input is None:
            self._bad_input = error
            self._send(signal.SIGTERM)

    def _pass_on(self, *, again: bool) -> None:
        self._display.note(
            "killing the runs" if again else "stopping after a checkpoint (again to kill)"
        )
        self._send(signal.SIGKILL if again else signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        for child in self._running.values():
            child.send(number)

    def _stop_all(self) -> None:
        """End the runs when the coordinator itself fails."""
        self._send(signal.SIGTERM)
        for child in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(timeout=_GRACE_SECONDS)
        self._send(signal.SIGKILL)

    def _snapshot(self) -> Snapshot:
        waiting = [cell for cell in self._missing() if cell not in self._running]
        return look(
            done=len(self._results),
            failed=len(self._outcome.failed),
            total=len(self._plan.cells),
            children=list(self._running.values()),
            waiting=[self._configs[cell] for cell in waiting],
            configs=self._configs,
            known=list(self._timings.values()),
            workers=len(self._slots),
        )
