"""A worker's talk with the storage, on a thread of its own.

A database that is slow, or away for minutes, delays what is told and what is taken, but no
training, no signal and no display. What is told waits here; were this worker to end before, the
files tell the next one the same.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from ablations.runner.lease import Lease
from ablations.runner.machine import Slot
from ablations.runner.queue import Claim, Kind, Queue
from ablations.runner.storage import STORAGE_ERRORS, Patience, reason

_TURN_SECONDS = 0.5
_LOOK_SECONDS = 2.0
_LAST_WORDS_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Ending:
    claim: Claim
    kind: Kind
    reason: str
    facts: Mapping[str, Any]


class Link:
    """Takes cells for free slots, says how they fare and how they ended, and leads by turns.

    Attributes:
        taken: cells for this worker, with the slot that each is to run at
        lost: cells that others have taken over from this worker
        pruned: cells whose run is to end for its poor figures
        trouble: what the storage does not answer for; empty while it does
    """

    def __init__(
        self, queue: Queue, lease: Lease, patience: Patience, wanted: Callable[[str], bool]
    ) -> None:
        """Have it take those cells that are ``wanted``."""
        self._queue, self._lease, self._wanted = queue, lease, wanted
        self._patience = patience
        self.taken: SimpleQueue[tuple[Slot, Claim]] = SimpleQueue()
        self.lost: SimpleQueue[Claim] = SimpleQueue()
        self.pruned: SimpleQueue[Claim] = SimpleQueue()
        self._free: SimpleQueue[Slot] = SimpleQueue()
        self._slots: deque[Slot] = deque()
        self._endings: deque[_Ending] = deque()
        self._running: dict[str, Claim] = {}
        self._facts: dict[str, Mapping[str, Any]] = {}
        self._reports: dict[str, dict[int, float]] = {}
        self._lock = threading.Lock()
        self._wake, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="storage", daemon=True)
        self._next_beat = self._next_look = 0.0
        self._steady_since = self._reached_at = time.monotonic()
        self._error: BaseException | None = None
        self.trouble = ""

    # What the worker calls; none of it waits for the storage.

    def __enter__(self) -> Link:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Tell what is left to tell, unless the storage is away."""
        self._closing.set()
        self._wake.set()
        self._thread.join(_LAST_WORDS_SECONDS)

    def offer(self, slot: Slot) -> None:
        """Have a cell taken for a slot that has become free."""
        self._free.put(slot)
        self._wake.set()

    def follow(self, claim: Claim, facts: Mapping[str, Any], reports: Mapping[int, float]) -> None:
        """Renew what is told of a running cell, and the values by step that it may be pruned by."""
        with self._lock:
            if claim.name not in self._facts:
                self._next_beat = 0.0  # others are to see at once that it has begun
            self._facts[claim.name] = dict(facts)
            self._reports[claim.name] = dict(reports)

    def end(self, claim: Claim, kind: Kind, why: str, facts: Mapping[str, Any]) -> None:
        """Have it told how a cell ended; its files are in their place already."""
        self._endings.append(_Ending(claim, kind, why, facts))
        self._wake.set()

    def check(self) -> None:
        """Raise here what went wrong there, if it is no trouble of the storage."""
        if self._error is not None:
            raise self._error

    # What the thread does.

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._attempt(self._turn)
                self._wake.wait(_TURN_SECONDS)
                self._wake.clear()
            self._attempt(self._tell_endings)
            self._attempt(self._lease.release)
        except BaseException as error:
            self._error = error

    def _attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except STORAGE_ERRORS as error:
            self.trouble = reason(error)
            return
        self.trouble = ""
        self._note_reached()

    def _note_reached(self) -> None:
        """Note that the storage answers. Where it did not for long, nobody's heartbeat could
        arrive, and who seems silent is not judged by it.
        """
        now = time.monotonic()
        if now - self._reached_at > self._patience.grace_seconds / 2:
            self._steady_since = now
        self._reached_at = now

    def _turn(self) -> None:
        told = self._tell_endings()
        self._beat()
        self._ask_pruner()
        if self._lease.hold() and (told or time.monotonic() >= self._next_look):
            self._note_reached()
            seconds = time.monotonic() - self._steady_since
            self._queue.reconcile(
                judge=seconds > self._patience.grace_seconds, still_leads=self._lease.hold
            )
            self._next_look = time.monotonic() + _LOOK_SECONDS
        self._take()

    def _tell_endings(self) -> bool:
        """Whether there was one."""
        told = bool(self._endings)
        while self._endings:
            ending = self._endings[0]
            self._queue.close(ending.claim, ending.kind, ending.reason, ending.facts)
            self._endings.popleft()
            self._running.pop(ending.claim.name, None)
            with self._lock:
                self._facts.pop(ending.claim.name, None)
                self._reports.pop(ending.claim.name, None)
        return told

    def _beat(self) -> None:
        if time.monotonic() < self._next_beat:
            return
        with self._lock:
            facts = dict(self._facts)
        for name, claim in list(self._running.items()):
            if not self._queue.beat(claim, facts.get(name, {})):
                del self._running[name]
                self.lost.put(claim)
        self._next_beat = time.monotonic() + self._patience.heartbeat_seconds

    def _ask_pruner(self) -> None:
        with self._lock:
            reports = dict(self._reports)
        for name, claim in self._running.items():
            if self._queue.should_prune(claim, reports.get(name, {})):
                self.pruned.put(claim)

    def _take(self) -> None:
        with suppress(Empty):
            while True:
                self._slots.append(self._free.get_nowait())
        while self._slots and not self._closing.is_set():
            claim = self._queue.take(self._wanted)
            if claim is None:
                return
            self._running[claim.name] = claim
            self.taken.put((self._slots.popleft(), claim))
