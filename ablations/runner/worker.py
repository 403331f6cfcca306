"""A worker: claims runs, starts each in a process of its own, and sees every one to its end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablations.runner.active_run import ActiveRun, Start, begin_attempt
from ablations.runner.attempts import newest, publish
from ablations.runner.machine import Slot
from ablations.runner.process import Orphan
from ablations.runner.queue import Claim, Queue
from ablations.runner.run_set import RunSet
from ablations.runner.shutdown import Shutdown
from ablations.runner.sync import QueueSync
from experiments.run.progress import RunState
from transformer.errors import InputError

_POLL_SECONDS = 0.05
_FIRST_SHOW_SECONDS = 10.0


@dataclass(slots=True, eq=False)
class _Waiting:
    """A claimed run that starts once the process of an earlier attempt is gone."""

    slot: Slot
    claim: Claim
    orphan: Orphan


class Worker:
    """Works until no run is left or a signal asks for an end.

    Args:
        run_set: the table or search
        queue: its runs in the storage
        sync: exchanges news with the queue
        slots: the places to run at
        start: starts the process of a run whose directory is claimed
        retries: how often a run is tried again after an exception
        wanted: whether a run is one of those that this call is to finish
        note: prints a line for the user
        show: called in each turn to display the state of all runs
        prepare: called once before the first run is claimed; may take seconds
    """

    def __init__(
        self,
        run_set: RunSet,
        queue: Queue,
        sync: QueueSync,
        *,
        slots: Sequence[Slot],
        start: Start,
        retries: int,
        wanted: Callable[[str], bool],
        note: Callable[[str], None],
        show: Callable[[], None],
        prepare: Callable[[], object],
    ) -> None:
        self._run_set, self._queue, self._sync = run_set, queue, sync
        self._start_process, self._retries = start, retries
        self._wanted, self._note, self._show = wanted, note, show
        self._prepare = prepare
        self._waiting: list[_Waiting] = []
        self._running: list[ActiveRun] = []
        self._shutdown = Shutdown(note)
        self._refusal: InputError | None = None
        # Before the first run starts there is nothing to see, and the table would look abandoned.
        self._show_from = time.monotonic() + _FIRST_SHOW_SECONDS
        self._trouble = ""
        sync.free = list(slots)

    def run(self) -> signal.Signals | None:
        """Work, and return the signal that ended it, if one did.

        Raises:
            InputError: if a run refuses its input, as every other would too, or the database was
                deleted or replaced.
        """
        with self._shutdown:
            try:
                self._prepare()
                while not self._is_over():
                    self._turn()
                    time.sleep(_POLL_SECONDS)
            except BaseException:
                self._stop_all()
                raise
            finally:
                self._sync.close()
        if self._refusal:
            raise self._refusal
        return self._shutdown.signal

    def _turn(self) -> None:
        self._shutdown.update(self._running)
        if self._is_ending:
            self._sync.free.clear()
        try:
            self._sync.step()
        except InputError as error:
            self._refuse(error)
        self._note_trouble()
        while self._sync.claimed:
            self._prepare_start(*self._sync.claimed.popleft())
        for waiting in [x for x in self._waiting if self._is_ending or x.orphan.is_gone()]:
            self._waiting.remove(waiting)
            self._start(waiting.slot, waiting.claim)
        for run in list(self._running):
            self._check(run)
        if self._running or time.monotonic() > self._show_from:
            self._show()

    @property
    def _is_ending(self) -> bool:
        return self._shutdown.signal is not None or self._refusal is not None

    def _is_over(self) -> bool:
        if self._running or self._waiting or self._sync.claimed:
            return False
        return self._is_ending or all(
            self._queue.is_done(name) or self._queue.is_given_up(name)
            for name in self._run_set.names
            if self._wanted(name)
        )

    def _prepare_start(self, slot: Slot, claim: Claim) -> None:
        orphan = Orphan(newest(self._run_set.root / claim.name))
        if orphan.existed:
            self._note(f"{claim.name}: ending the process that an earlier attempt left behind")
        self._waiting.append(_Waiting(slot, claim, orphan))

    def _start(self, slot: Slot, claim: Claim) -> None:
        if claim not in self._sync.held:  # another worker has taken it over meanwhile
            self._sync.free.append(slot)
            return
        stem = self._run_set.root / claim.name
        left = newest(stem)
        if (
            left is not None
            and left != stem
            and self._run_set.is_done(left)
            and publish(left, stem)
        ):
            self._release(slot, claim)  # its worker died before it could do this
            return
        if self._is_ending:
            self._release(slot, claim, "the worker stops")
            return
        try:
            run = begin_attempt(claim, slot, self._run_set, self._start_process, self._retries)
        except InputError as error:
            self._release(slot, claim, str(error))
            self._refuse(error)
            return
        if run is None:
            self._release(slot, claim, "another worker was first")
            return
        self._running.append(run)
        self._sync.started(run)
        self._note(f"{claim.name}: {run.describe_start()}")

    def _check(self, run: ActiveRun) -> None:
        state = run.state()
        if state is None:
            return
        self._running.remove(run)
        name, slot, claim = run.claim.name, run.slot, run.claim
        if run.finish():
            self._release(slot, claim)
            self._note(f"{name}: {run.describe_end()}")
        elif not run.is_newest():
            removed = newest(self._run_set.root / name) is None
            why = "its directory was removed" if removed else "another attempt has taken it over"
            self._release(slot, claim, why)
            self._note(f"{name}: {why}")
        elif state == RunState.REFUSED:
            self._release(slot, claim, run.refusal())
            self._refuse(InputError(f"{name}: {run.refusal()}"))
        elif self._is_ending or run.is_lost or state == RunState.STOPPED:
            self._release(slot, claim, "stopped")
            kept = " after a checkpoint" if state == RunState.STOPPED else ""
            self._note(f"{name}: stopped{kept}")
        else:
            self._fail(run)

    def _fail(self, run: ActiveRun) -> None:
        failure = run.fail()
        attributes = {"lines": failure.lines, "given_up": failure.is_final}
        self._release(run.slot, run.claim, failure.reason, attributes)
        then = "given up" if failure.is_final else "it is tried again"
        lines = [f"    {line}" for line in failure.lines]
        self._note("\n".join([f"{run.claim.name}: failed, {failure.reason}; {then}", *lines]))

    def _release(
        self,
        slot: Slot,
        claim: Claim,
        failure: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Report how a claimed run ended, and use its slot for another one."""
        self._sync.ended(claim, failure, attributes)
        self._sync.free.append(slot)

    def _refuse(self, error: InputError) -> None:
        if self._refusal is None:
            self._refusal = error
            self._shutdown.stop(self._running)

    def _stop_all(self) -> None:
        """End the runs when the worker itself fails."""
        self._shutdown.stop(self._running)
        while any(run.state() is None for run in self._running):
            self._shutdown.update(self._running)
            time.sleep(_POLL_SECONDS)

    def _note_trouble(self) -> None:
        trouble = self._sync.trouble
        if trouble and not self._trouble:
            self._note(
                f"the storage does not answer ({trouble}): runs continue, and are reported later"
            )
        elif self._trouble and not trouble:
            self._note("the storage answers again")
        self._trouble = trouble
