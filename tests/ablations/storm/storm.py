"""A storm over a fleet: faults at random moments of a seed, and workers that come again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from tests.ablations.storm.databases import Database, leader
from tests.ablations.storm.fleet import Launch, Worker, launch, send
from tests.ablations.storm.place import Place

_TICK_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Weather:
    """How bad it is: how many faults, the mean seconds between two, and what the fleet is set to.

    The fleet's heartbeat and grace are in seconds; a pause lasts one to two times the grace.
    """

    seed: int
    faults: int
    every: float
    heartbeat: int = 1
    grace: int = 2
    workers: int = 4
    patience: float = 120.0


class Storm:
    """Works a place's table off with workers that are disturbed.

    Example:
        >>> with Storm(place, database, weather) as storm:
        ...     storm.blow()
    """

    def __init__(
        self, place: Place, database: Database, weather: Weather, launch: Launch = launch
    ) -> None:
        self._place, self._database, self._weather = place, database, weather
        self._launch = launch
        self._random = Random(weather.seed)
        self._began = time.monotonic()
        self._due: list[tuple[float, Callable[[], None]]] = []
        self.workers: list[Worker] = []
        self.journal: list[str] = []
        self.faults = self.kills = 0
        self._struck = 0.0  # by the clock of the file system

    def __enter__(self) -> Storm:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for worker in self.workers:
            worker.end()
        self._database.start()
        if error is not None:
            error.add_note(self.describe())

    def describe(self) -> str:
        """What was done when, and what the last workers said."""
        words = [worker.last_words() for worker in self.workers[-2 * self._weather.workers :]]
        where = f"a storm of seed {self._weather.seed} in {self._place.folder}"
        return "\n".join([where, *self.journal, *words])

    def blow(self) -> None:
        """Disturb until all is done or the faults are used up, then wait for the end."""
        following = 0.0
        while not self._done():
            now = time.monotonic() - self._began
            assert now < self._weather.patience, "the table does not come to its end"
            self._keep_up()
            for moment, action in [entry for entry in self._due if entry[0] <= now]:
                self._due.remove((moment, action))
                action()
            if now >= following and self.faults < self._weather.faults and self._has_moved():
                self._strike(now)
                following = now + self._random.uniform(0.3, 1.7) * self._weather.every
            time.sleep(_TICK_SECONDS)
        self._calm()

    def _has_moved(self) -> bool:
        """Whether a trial has come further since the last fault: a slow machine is hit less."""
        for path in self._place.out.glob("*/seed-*/progress.json"):
            with suppress(FileNotFoundError):  # it has just been renamed
                if path.stat().st_mtime > self._struck:
                    return True
        return False

    def _done(self) -> bool:
        return all(cell.directory(self._place.out).exists() for cell in self._place.cells)

    def _calm(self) -> None:
        """Undo what lasts; the workers must find by themselves that there is nothing left."""
        for _, action in self._due:
            action()
        self._due.clear()
        deadline = time.monotonic() + 5 * self._weather.grace + 60
        for worker in self.workers:
            while worker.lives:
                assert time.monotonic() < deadline, f"worker {worker.mark} does not end"
                time.sleep(_TICK_SECONDS)

    def _keep_up(self) -> None:
        """Replace the workers that are gone; the first of all is ``run``, which makes the plan."""
        if not self.workers:
            self._start("run")
        planned = (self._place.out / "table.json").exists()
        while planned and sum(w.lives for w in self.workers) < self._weather.workers:
            self._start("run" if self._random.random() < 0.25 else "worker")

    def _start(self, how: str) -> None:
        place = self._place
        what = place.run if how == "run" else place.worker
        environment = place.environment(
            ABLATIONS_HEARTBEAT_SECONDS=str(self._weather.heartbeat),
            ABLATIONS_GRACE_SECONDS=str(self._weather.grace),
            OPTUNA_STORAGE=self._database.url,
        )
        command = place.command(*what, "--workers", "1")
        self.workers.append(Worker(self._launch, command, environment, place.folder))

    def _strike(self, now: float) -> None:
        faults = (
            self._kill_worker,
            self._kill_leader,
            self._kill_trial,
            self._kill_host,
            self._pause_host,
            self._pause_worker,
            self._stop_database,
        )
        fault = self._random.choices(faults, weights=(2, 2, 4, 2, 2, 2, 1))[0]
        victims = [worker for worker in self.workers if worker.lives and not worker.paused]
        if victims:
            said = fault(self._random.choice(victims))
            if said:
                self.faults += 1
                self.kills += said.startswith("killed")
                self._struck = time.time()
                self.journal.append(f"{now:7.2f} s  {said}")

    def _kill_worker(self, worker: Worker) -> str:
        worker.send(signal.SIGKILL)
        return f"killed worker {worker.mark}"

    def _kill_leader(self, _worker: Worker) -> str:
        pid = leader(self._database)
        for worker in self.workers:
            if worker.lives and worker.process.pid == pid:
                worker.send(signal.SIGKILL)
                return f"killed worker {worker.mark}, which held the lease"
        return ""

    def _kill_trial(self, worker: Worker) -> str:
        trials = worker.trials
        if not trials:
            return ""
        pid = self._random.choice(trials)
        send(pid, signal.SIGKILL)
        return f"killed process {pid} of worker {worker.mark}"

    def _kill_host(self, worker: Worker) -> str:
        worker.send_all(signal.SIGKILL)
        return f"killed worker {worker.mark} and all its processes"

    def _pause_host(self, worker: Worker) -> str:
        worker.send_all(signal.SIGSTOP)
        return f"paused worker {worker.mark} and all its processes {self._resume(worker)}"

    def _pause_worker(self, worker: Worker) -> str:
        worker.send(signal.SIGSTOP)
        return f"paused worker {worker.mark} alone {self._resume(worker)}"

    def _resume(self, worker: Worker) -> str:
        def resume() -> None:
            worker.paused = False
            worker.send_all(signal.SIGCONT)

        worker.paused = True
        return self._later(self._weather.grace * self._random.uniform(1.0, 2.0), resume)

    def _stop_database(self, _worker: Worker) -> str:
        if not self._database.stop():
            return ""
        return f"stopped the database {self._later(self._weather.grace, self._database.start)}"

    def _later(self, seconds: float, action: Callable[[], None]) -> str:
        self._due.append((time.monotonic() - self._began + seconds, action))
        return f"for {seconds:.1f} s"
