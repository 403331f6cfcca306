"""A worker's exchange with the storage, in small operations between its looks at the processes.

Runs are processes of their own, which no outage of the storage stops, so a plain loop is enough:
each operation is bounded by ``Storage.wait_seconds``, and after a failed one the worker carries on
and tries again later. What cannot be reported stays queued here; if this worker dies first, the
files tell the next one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ablations.runner.active_run import ActiveRun
from ablations.runner.lease import Lease
from ablations.runner.machine import Slot
from ablations.runner.queue import Claim, Queue
from ablations.runner.storage import STORAGE_ERRORS, Heartbeat, reason
from transformer.errors import InputError

_ROUND_SECONDS = 0.5
_RETRY_SECONDS = 1.0
_RECONCILE_SECONDS = 2.0
# After this long the rest of a reconciliation waits for the next round.
_RECONCILE_BUDGET_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a claimed run that is still to be reported; ``failure`` is None if it is done."""

    claim: Claim
    failure: str | None
    attributes: Mapping[str, Any]


class QueueSync:
    """Claims runs for free slots, reports how they fare, and leads the queue when it is its turn.

    Attributes:
        free: slots for which to claim runs
        claimed: new claims, each with its slot, for the worker to start
        held: all claims that are this worker's, with their runs once they are started
        trouble: the storage's last error; empty while it answers
    """

    def __init__(
        self, queue: Queue, lease: Lease, heartbeat: Heartbeat, wanted: Callable[[str], bool]
    ) -> None:
        self._queue, self._lease, self._wanted = queue, lease, wanted
        self._heartbeat = heartbeat
        self.free: list[Slot] = []
        self.claimed: deque[tuple[Slot, Claim]] = deque()
        self.held: dict[Claim, ActiveRun | None] = {}
        self.trouble = ""
        self._next_beats: dict[Claim, float] = {}
        self._ends: deque[_End] = deque()
        self._round = self._operations()
        self._next_round = self._next_reconciliation = 0.0
        self._steady_since = self._reached_at = time.monotonic()

    def started(self, run: ActiveRun) -> None:
        """Report on a run from now on, at once at first, so that others see it begin."""
        self.held[run.claim] = run
        self._next_beats[run.claim] = 0.0

    def ended(
        self, claim: Claim, failure: str | None, attributes: Mapping[str, Any] | None = None
    ) -> None:
        """Report the end of a run whose files are in place already."""
        if claim in self.held:
            self.held[claim] = None  # its process is gone
        self._ends.append(_End(claim, failure, attributes or {}))
        self._next_round = 0.0

    def step(self) -> None:
        """Do the next operation that is due, if any.

        Raises:
            InputError: if the database was replaced, or nothing can be trained.
        """
        if time.monotonic() < self._next_round:
            return
        try:
            next(self._round)
        except StopIteration:
            self._begin_round(0.0 if self._ends else _ROUND_SECONDS)
        except STORAGE_ERRORS as error:
            self.trouble = reason(error)
            self._begin_round(_RETRY_SECONDS)
            return
        self.trouble = ""
        self._note_contact()

    def close(self) -> None:
        """Report what is left to report, unless the storage is away, and let another lead."""
        with suppress(*STORAGE_ERRORS, InputError):
            while self._ends:
                self._report_end()
            self._lease.release()

    def _begin_round(self, delay: float) -> None:
        self._round = self._operations()
        self._next_round = time.monotonic() + delay

    def _note_contact(self) -> None:
        """Record that the storage answers.

        After a long gap nobody's heartbeats can have arrived, so silence proves nothing for a
        while.
        """
        now = time.monotonic()
        if now - self._reached_at > self._heartbeat.grace_seconds / 2:
            self._steady_since = now
        self._reached_at = now

    def _operations(self) -> Iterator[None]:
        """One round, the most urgent first, with a pause after each access to the storage."""
        news = bool(self._ends)
        while self._ends:
            self._report_end()
            yield
        for claim in list(self.held):
            if time.monotonic() >= self._next_beats[claim]:
                self._beat(claim, self.held[claim])
                yield
        for claim in list(self.held):
            run = self.held[claim]
            if run and self._queue.should_prune(claim, run.run_set.reports(run.directory)):
                run.prune()
                yield
        if self._lease.hold() and (news or time.monotonic() >= self._next_reconciliation):
            self._reconcile()
        yield
        while self.free and (claim := self._queue.take(self._wanted)):
            self.held[claim] = None
            self._next_beats[claim] = time.monotonic() + self._heartbeat.interval_seconds
            self.claimed.append((self.free.pop(0), claim))
            yield

    def _report_end(self) -> None:
        end = self._ends[0]
        if end.failure is None:
            self._queue.complete(end.claim)
        else:
            self._queue.fail(end.claim, end.failure, end.attributes)
        self._ends.popleft()
        self._drop(end.claim)

    def _drop(self, claim: Claim) -> None:
        self.held.pop(claim, None)
        self._next_beats.pop(claim, None)

    def _beat(self, claim: Claim, run: ActiveRun | None) -> None:
        if self._queue.beat(claim, run.attributes() if run else {}):
            self._next_beats[claim] = time.monotonic() + self._heartbeat.interval_seconds
            return
        self._drop(claim)
        if run is not None:
            run.lose()

    def _reconcile(self) -> None:
        self._note_contact()
        now = time.monotonic()
        until = now + _RECONCILE_BUDGET_SECONDS
        complete = self._queue.reconcile(
            judge=now - self._steady_since > self._heartbeat.grace_seconds,
            may_continue=lambda: time.monotonic() < until and self._lease.hold(),
        )
        if complete:
            self._next_reconciliation = time.monotonic() + _RECONCILE_SECONDS
