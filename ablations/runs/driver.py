"""The driver: one loop that starts and ends runs."""

from __future__ import annotations

import math
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Protocol

from ablations.runs.attempts import clear_failures, is_elsewhere, leave_pruned, refuse_foreign
from ablations.runs.options import Options
from ablations.runs.process import Job, Place
from ablations.runs.study import PlannedRuns, Study
from ablations.runs.supervise import AttemptEnd, Request
from experiments.records.experiment import Experiment
from experiments.records.progress import GRACE_SECONDS, RunState, stop_signals
from experiments.records.run import attempt_number
from transformer.errors import InputError
from transformer.files import within

_POLL_SECONDS = 0.05
_AGAIN_SECONDS = 0.5  # before a stopped or waiting run is tried again
_ELSEWHERE_SECONDS = 2.0  # between looks at a run that another driver has
_MOST_IN_VAIN = 9
_MOST_ALIKE = 10  # rows, or trials, refused for one reason before any trains: then the driver stops
_PRUNE_SECONDS = 0.5


class Executor(Protocol):
    """Carries out attempts by :func:`ablations.runs.supervise.supervise`.

    ``places`` are all slots, free or busy; on a cluster the list changes over time. ``ended`` gives
    the attempts that have ended since the last call, with the names of their runs. ``stop`` ends
    all attempts; ``close`` waits for them and frees what the executor holds. ``where`` names the
    devices for the user.
    """

    where: str

    def places(self) -> Sequence[Place]: ...
    def start(self, job: Job, place: Place) -> None: ...
    def ended(self) -> Sequence[tuple[str, AttemptEnd]]: ...
    def stop(self, request: Request) -> None: ...
    def close(self) -> None: ...


def _row(name: str) -> str:
    """The row of a run; a trial counts as a row of its own."""
    return name.rpartition("/")[0] or name


class Driver:
    """Carries out the runs ``names`` in this order, until none is left or a signal ends it.

    Args:
        deadline: when runs end after a checkpoint, by time.monotonic()
        note: prints a line for the user
        show: displays the state; called many times a second
    """

    def __init__(
        self,
        planned: PlannedRuns,
        executor: Executor,
        names: Sequence[str],
        options: Options,
        *,
        deadline: float = math.inf,
        note: Callable[[str], None],
        show: Callable[[], None],
    ) -> None:
        for name in names:
            refuse_foreign(within(planned.root, name))
        self._planned, self._executor, self._options = planned, executor, options
        self._study = Study(planned, in_memory=options.shard.count > 1)
        self._note, self._show = note, show
        self._waiting = deque(names)
        self._running: dict[str, Place] = {}
        self._begun: dict[str, Experiment] = {}
        self._pruned: set[str] = set()
        self._prune_at = 0.0
        self._deadline = deadline
        self._kill_at: float | None = None  # None unless the driver is ending
        self._received: list[signal.Signals] = []
        self._handled = 0  # of the received signals
        self._refusal: InputError | None = None
        self._rows = {_row(name) for name in names}
        self._refused: dict[str, AttemptEnd] = {}  # or blocked
        self._in_vain: Counter[str] = Counter()  # attempts that stopped though nobody asked
        self._not_before: dict[str, float] = {}
        self._is_stranded = False
        self.given_up: list[str] = []

    def run(self) -> signal.Signals | None:
        """Carry out the runs in the main thread; return the signal that ended it early, if any."""
        handlers = {number: signal.signal(number, self._receive) for number in stop_signals()}
        try:
            while self._running or (self._waiting and self._kill_at is None):
                self._turn()
                time.sleep(_POLL_SECONDS)
        except BaseException:
            self._executor.stop(Request.STOP)
            raise
        finally:
            self._executor.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if self._refusal:
            raise self._refusal
        if self._received:
            return self._received[0]
        blocked = [name for name, end in self._refused.items() if end.state == RunState.BLOCKED]
        if blocked:
            raise self._refusal_of(blocked)
        return None

    def _turn(self) -> None:
        for name, end in self._executor.ended():
            self._end(name, end)
        if len(self._received) > self._handled:
            seconds = 0.0 if self._handled else GRACE_SECONDS
            self._handled = len(self._received)
            ending = "stopping after a checkpoint (a second signal kills the runs)"
            self._note(ending if seconds else "killing the runs")
            self._stop(seconds)
        if self._kill_at is None and time.monotonic() >= self._deadline:
            self._note("time is up: stopping after a checkpoint")
            self._stop()
        if self._kill_at is None:
            self._fill()
            self._prune()
        elif time.monotonic() >= self._kill_at:
            self._executor.stop(Request.KILL)
        self._show()

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(signal.Signals(number))

    def _stop(self, seconds: float = GRACE_SECONDS) -> None:
        """Let all runs end after a checkpoint, and kill those that take longer than ``seconds``."""
        self._kill_at = time.monotonic() + seconds
        self._executor.stop(Request.STOP)

    def _refuse(self, error: InputError) -> None:
        if self._refusal is None:
            self._refusal = error
            self._stop()

    def _fill(self) -> None:
        if not self._waiting:
            return
        taken, places = set(self._running.values()), self._executor.places()
        if not places and not self._running and not self._is_stranded:
            self._note(f"no node with room is left: {len(self._waiting)} runs wait for one")
        self._is_stranded = not places
        for place in places:
            if place in taken or self._kill_at is not None:
                continue
            if (name := self._next()) is not None:
                self._start(name, place)

    def _next(self) -> str | None:
        """Take the next run off the queue, if possible one of a row that was not refused.

        A run that another driver works on is left to it, and looked at again later.
        """
        now = time.monotonic()
        ready = [name for name in self._waiting if self._not_before.get(name, now) <= now]
        refused = {_row(name) for name in self._refused}
        for name in sorted(ready, key=lambda name: _row(name) in refused):
            if self._waits_for_training(name):
                continue
            if not is_elsewhere(self._planned.root / name):
                self._waiting.remove(name)
                return name
            if name not in self._not_before:
                self._note(f"{name}: another driver works on it, and this one waits for its end")
            self._not_before[name] = now + _ELSEWHERE_SECONDS
            if self._planned.prunes:  # trials must begin in their order
                break
        return None

    def _waits_for_training(self, name: str) -> bool:
        """Whether this run shares the training of a run in progress, and waits for it."""
        others = self._planned.shares(name)
        trains = any(other in self._running for other in others) or any(
            is_elsewhere(self._planned.root / other) for other in others
        )
        if not trains or self._planned.has_training(name):
            return False
        self._not_before[name] = time.monotonic() + _AGAIN_SECONDS
        return True

    def _start(self, name: str, place: Place) -> None:
        try:
            experiment = self._study.begin(name)
        except InputError as error:
            self._refuse(error)
            return
        attempt = attempt_number(self._planned.folder.read(name).directory) + 1
        again = f" (attempt {attempt})" if attempt > 1 else ""
        where = f" on {place.host}" if place.host else ""
        self._note(f"{name}: started{again}{where}")
        job = Job(
            root=self._planned.root.absolute(),
            name=name,
            experiment=experiment,
            retries=self._options.retries,
            accumulate=self._options.accumulate,
            log=self._options.log,
            shares=self._planned.shares(name),
            checkpoints=self._planned.checkpoints(name),
            keep_checkpoints=self._options.keep_checkpoints,
        )
        self._running[name], self._begun[name] = place, experiment
        self._executor.start(job, place)

    def _end(self, name: str, end: AttemptEnd) -> None:
        del self._running[name]
        self._pruned.discard(name)
        self._note(f"{name}: {end.text}")
        if end.ended is not None:
            self._study.end(name, end.ended)
        elif end.state == RunState.BLOCKED and self._was_edited(name):
            self._waiting.appendleft(name)
        elif end.state == RunState.GIVEN_UP:
            self._give_up(name)
            self._leave_sharers(name)
        elif end.state in (RunState.REFUSED, RunState.BLOCKED):
            self._set_aside(name, end)
        elif end.state == RunState.FAILED:
            self._waiting.appendleft(name)
        elif self._kill_at is None and self._in_vain[name] >= _MOST_IN_VAIN:
            self._note(f"{name}: this happened {_MOST_IN_VAIN + 1} times; given up")
            self._give_up(name)
        else:  # stopped by this driver, or its directory was taken over or removed
            self._in_vain[name] += 1
            self._not_before[name] = time.monotonic() + _AGAIN_SECONDS
            self._waiting.append(name)

    def _was_edited(self, name: str) -> bool:
        """Whether the run's class was edited after its start and before it was imported."""
        return self._study.begin(name) != self._begun[name]

    def _give_up(self, name: str) -> None:
        self._study.end(name, None)
        self.given_up.append(name)

    def _leave_sharers(self, name: str) -> None:
        """Leave the runs that share this run's training, which would fail again."""
        progress = self._planned.folder.read(name).progress
        if progress is not None and 0 < progress.max_steps <= progress.step:
            return  # it failed after training
        for other in self._planned.shares(name):
            if other in self._waiting:
                self._waiting.remove(other)
                self._note(f"{other}: left for now, as its training failed in {name}")

    def _set_aside(self, name: str, end: AttemptEnd) -> None:
        """Leave a run that cannot begin; if none can, for the same reason, stop the driver."""
        self._refused[name] = end
        if end.state == RunState.REFUSED:
            self._give_up(name)
        rows = {_row(name) for name in self._refused}
        reasons = {each.reason for each in self._refused.values()}
        enough = min(_MOST_ALIKE, len(self._rows))
        if len(reasons) > 1 or len(rows) < enough or self._any_trains():
            return
        in_order = [name for name in self._planned.names if name in self._refused]
        self._refuse(self._refusal_of(in_order))
        for each in self._refused:
            clear_failures(self._planned.root / each)

    def _any_trains(self) -> bool:
        """Whether any run has finished, or is training now."""
        folder = self._planned.folder
        running = (folder.read(name).progress for name in self._running)
        if any(progress and progress.stage == RunState.TRAIN for progress in running):
            return True
        return any(run.result is not None for run in folder.look())

    def _refusal_of(self, names: Sequence[str]) -> InputError:
        """An error that gives the reason of the first of these runs."""
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        return InputError(f"{names[0]}{more}: {self._refused[names[0]].reason}")

    def _prune(self) -> None:
        """Prune trials by leaving the step in a file, which their supervisors look for."""
        if not self._planned.prunes or time.monotonic() < self._prune_at:
            return
        self._prune_at = time.monotonic() + _PRUNE_SECONDS
        for name in sorted(self._running.keys() - self._pruned):
            run = self._planned.folder.read(name)
            curve = run.curve
            step = self._study.prunes_at(name, curve)
            if step is not None:
                self._pruned.add(name)
                with suppress(FileNotFoundError):  # the run has just ended
                    leave_pruned(run.directory, step, curve[step])
