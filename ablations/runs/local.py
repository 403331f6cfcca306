"""This machine as an executor."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from ablations.runs.executor import AttemptEnd, Job, Place, Start
from ablations.runs.forkserver import ForkServer
from ablations.runs.supervise import GRACE_SECONDS, Wish, supervise


class LocalExecutor:
    """Runs at ``places`` of this machine; see :class:`ablations.runs.executor.Executor`."""

    def __init__(self, places: Sequence[Place], start: Start | None = None) -> None:
        self._places, self._server = places, ForkServer()
        self._start_process = start or self._server.start
        self._wish = Wish.CONTINUE
        self._threads = ThreadPoolExecutor(max_workers=len(places))
        self._attempts: dict[str, Future[AttemptEnd]] = {}

    def places(self) -> Sequence[Place]:
        return self._places

    def start(self, job: Job, place: Place) -> None:
        self._attempts[job.name] = self._threads.submit(
            supervise, job, place, self._start_process, lambda: self._wish
        )

    def ended(self) -> Sequence[tuple[str, AttemptEnd]]:
        """As for all executors; a crash of an attempt is raised."""
        done = [name for name, attempt in self._attempts.items() if attempt.done()]
        return [(name, self._attempts.pop(name).result()) for name in done]

    def stop(self, *, kill: bool) -> None:
        self._wish = Wish.KILL if kill else max(self._wish, Wish.STOP)

    def close(self) -> None:
        """Wait for the attempts that are left, and kill those that do not end."""
        wait(self._attempts.values(), GRACE_SECONDS)
        self.stop(kill=True)
        self._threads.shutdown()
        self._server.close()
