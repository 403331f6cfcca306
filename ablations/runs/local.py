"""This machine as an executor: each attempt has a thread, and its run a process."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from ablations.runs import forkserver
from ablations.runs.executor import AttemptEnd, Job, Place
from ablations.runs.supervise import Start, Wish, supervise

_GRACE_SECONDS = 20.0


class LocalExecutor:
    """Runs at ``places`` of this machine; see :class:`ablations.runs.executor.Executor`."""

    def __init__(self, places: Sequence[Place], start: Start | None = None) -> None:
        self._places, self._start_process = places, start or forkserver.start
        self._wish = Wish.CONTINUE
        self._threads = ThreadPoolExecutor(max_workers=len(places))
        self._attempts: dict[str, Future[AttemptEnd]] = {}

    def places(self) -> Sequence[Place]:
        """All places, the same at each call."""
        return self._places

    def start(self, job: Job, place: Place) -> None:
        """Begin an attempt."""
        self._attempts[job.name] = self._threads.submit(
            supervise, job, place, self._start_process, lambda: self._wish
        )

    def ended(self) -> Sequence[tuple[str, AttemptEnd]]:
        """The attempts that have ended since the last call; a crash of one is raised."""
        done = [name for name, attempt in self._attempts.items() if attempt.done()]
        return [(name, self._attempts.pop(name).result()) for name in done]

    def stop(self, *, kill: bool) -> None:
        """Let all attempts end after a checkpoint, or at once."""
        self._wish = Wish.KILL if kill else max(self._wish, Wish.STOP)

    def close(self) -> None:
        """Wait for the attempts that are left, and kill those that do not end."""
        wait(self._attempts.values(), _GRACE_SECONDS)
        self.stop(kill=True)
        self._threads.shutdown()
