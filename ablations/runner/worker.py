"""One worker of a fleet: starts the cells that it takes, several at a time, each in a process of
its own, and sees to their end.

It knows the runs' directories and processes; what the storage knows comes and goes by the link.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import Any, TypeVar

from ablations.runner.attempts import newest, publish
from ablations.runner.child import Orphan, Start
from ablations.runner.interrupt import Interrupt
from ablations.runner.link import Link
from ablations.runner.machine import Slot
from ablations.runner.queue import Claim, Kind, Queue
from ablations.runner.running import Begin, Run
from ablations.runner.stopping import Stop
from ablations.runner.work import Work
from transformer.errors import InputError

_POLL_SECONDS = 0.05
_LOOK_SECONDS = 0.5
_FIRST_SECONDS = 10.0

_T = TypeVar("_T")


@dataclass(slots=True)
class Outcome:
    """How a call ended: the cells that it saw fail for good, and the signal that stopped it."""

    failed: dict[str, str] = field(default_factory=dict[str, str])
    signal: signal.Signals | None = None


@dataclass(slots=True, eq=False)
class _Waiting:
    """A cell that is to start at ``slot`` once what an earlier attempt left running is gone."""

    slot: Slot
    claim: Claim
    orphan: Orphan


class Worker:
    """Works on a fleet's cells until none is left, or a signal comes.

    Args:
        work: what the fleet works on
        queue: its cells in the storage
        link: takes cells for this worker
        slots: the places to run at
        start: starts the process of a run whose directory is claimed
        retries: how often a cell is tried again after an exception
        wanted: whether a cell is one of those that this call is to finish
        note: tells a person something in a line of its own
        show: called again and again, to show a person how far the fleet is
    """

    def __init__(
        self,
        work: Work,
        queue: Queue,
        link: Link,
        *,
        slots: Sequence[Slot],
        start: Start,
        retries: int,
        wanted: Callable[[str], bool],
        note: Callable[[str], None],
        show: Callable[[], None],
    ) -> None:
        self._work, self._queue, self._link = work, queue, link
        self._slots, self._wanted = slots, wanted
        self._note, self._show = note, show
        self._begin = Begin(work, start, retries)
        self._waiting: list[_Waiting] = []
        self._running: list[Run] = []
        self._outcome = Outcome()
        self._interrupt = Interrupt()
        self._stop = Stop(self._interrupt, note)
        self._refusal: InputError | None = None
        # Until the first run has begun there is nothing to see, and it would look forsaken.
        self._show_from = time.monotonic() + _FIRST_SECONDS
        self._trouble = ""

    def run(self) -> Outcome:
        """Work.

        Raises:
            InputError: if a run refuses its input, as the others here would do too, or the
                storage is no longer the one that was opened.
        """
        for slot in self._slots:
            self._link.offer(slot)
        with self._interrupt, self._link:
            try:
                while not self._is_over():
                    self._turn()
                    time.sleep(_POLL_SECONDS)
            except BaseException:
                self._stop_all()
                raise
        if self._refusal:
            raise self._refusal
        self._outcome.signal = self._interrupt.first
        return self._outcome

    def _turn(self) -> None:
        self._stop.attend(self._running)
        try:
            self._link.check()
        except InputError as error:
            self._refuse(error)
        self._tell_of_trouble()
        for slot, claim in _drain(self._link.taken):
            self._waiting.append(self._call(slot, claim))
        for waiting in [each for each in self._waiting if self._ending or each.orphan.is_gone()]:
            self._waiting.remove(waiting)
            self._start(waiting.slot, waiting.claim)
        for run in list(self._running):
            self._watch(run)
        self._heed()
        if self._running or time.monotonic() > self._show_from:
            self._show()

    @property
    def _ending(self) -> bool:
        """Whether nothing more is started."""
        return self._interrupt.first is not None or self._refusal is not None

    def _is_over(self) -> bool:
        if self._running or self._waiting or not self._link.taken.empty():
            return False
        if self._ending:
            return True
        return not any(self._queue.is_open(name) for name in self._work.names if self._wanted(name))

    # A cell from its start to its end.

    def _call(self, slot: Slot, claim: Claim) -> _Waiting:
        orphan = Orphan(newest(self._work.root / claim.name))
        if orphan.was_there:
            self._note(f"{claim.name}: ending the process that an earlier attempt left behind")
        return _Waiting(slot, claim, orphan)

    def _start(self, slot: Slot, claim: Claim) -> None:
        stem = self._work.root / claim.name
        left = newest(stem)
        if left is not None and left != stem and self._work.is_done(left) and publish(left, stem):
            self._release(slot, claim, "done")  # only its worker had no time to say so
            return
        if self._ending:
            self._release(slot, claim, "released", "the worker stops")
            return
        try:
            run = self._begin(slot, claim)
        except InputError as error:
            self._release(slot, claim, "released", str(error))
            self._refuse(error)
            return
        if run is None:
            self._release(slot, claim, "released", "another worker was first")
            return
        self._running.append(run)
        self._link.follow(claim, run.facts(), {})
        self._note(f"{claim.name}: {run.describe_start()}")

    def _watch(self, run: Run) -> None:
        ending = run.ending()
        if ending is None:
            if time.monotonic() > run.look_at:
                run.look_at = time.monotonic() + _LOOK_SECONDS
                self._link.follow(run.claim, run.facts(), self._work.reports(run.directory))
            return
        self._running.remove(run)
        name, slot = run.claim.name, run.child.slot
        if run.finish():
            self._release(slot, run.claim, "done")
            self._note(f"{name}: {run.describe_end()}")
        elif not run.is_newest():
            self._release(slot, run.claim, "released", "taken over by another attempt")
            self._note(f"{name}: another attempt has taken it over")
        elif ending == "refused":
            self._release(slot, run.claim, "released", run.last_words())
            self._refuse(InputError(f"{name}: {run.last_words()}"))
        elif self._ending or run.is_lost or ending == "stopped":
            self._release(slot, run.claim, "released", "stopped")
            kept = " after a checkpoint" if ending == "stopped" else ""
            self._note(f"{name}: stopped{kept}")
        else:
            self._fail(run)

    def _fail(self, run: Run) -> None:
        failure = run.fail()
        facts = {"lines": failure.lines, "given_up": failure.is_final}
        self._release(run.child.slot, run.claim, "failed", failure.reason, facts)
        if failure.is_final:
            self._outcome.failed[run.claim.name] = failure.reason
        then = "given up" if failure.is_final else "it is tried again"
        lines = [f"    {line}" for line in failure.lines]
        self._note("\n".join([f"{run.claim.name}: failed, {failure.reason}; {then}", *lines]))

    def _release(
        self,
        slot: Slot,
        claim: Claim,
        kind: Kind,
        why: str = "",
        facts: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._link.end(claim, kind, why, facts)
        if not self._ending:
            self._link.offer(slot)

    def _heed(self) -> None:
        """End the runs that are no longer this worker's, or not worth going on with."""
        lost, pruned = list(_drain(self._link.lost)), list(_drain(self._link.pruned))
        for run in self._running:
            if run.claim in lost:
                run.lose()
            elif run.claim in pruned:
                run.prune()

    # Ends of the whole.

    def _refuse(self, error: InputError) -> None:
        if self._refusal is None:
            self._refusal = error
            self._stop.ask(self._running)

    def _stop_all(self) -> None:
        """End the runs when the worker itself fails."""
        self._stop.ask(self._running)
        while any(run.ending() is None for run in self._running):
            self._stop.attend(self._running)
            time.sleep(_POLL_SECONDS)

    def _tell_of_trouble(self) -> None:
        trouble = self._link.trouble
        if trouble and not self._trouble:
            self._note(
                f"the storage does not answer ({trouble}): what runs goes on, and is told later"
            )
        elif self._trouble and not trouble:
            self._note("the storage answers again")
        self._trouble = trouble


def _drain(queue: SimpleQueue[_T]) -> list[_T]:
    found: list[_T] = []
    while True:
        try:
            found.append(queue.get_nowait())
        except Empty:
            return found
