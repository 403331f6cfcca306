"""A storm: random faults, reproducible by their seed, while workers are restarted all the time."""

from __future__ import annotations

import resource
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from ablations.runner.attempts import read_result
from tests.ablations.storm.damage import Damage, fill_disk
from tests.ablations.storm.databases import Database, leader
from tests.ablations.storm.fleet import Launch, Worker, launch, send
from tests.ablations.storm.place import Place

_TICK_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class StormSettings:
    """How many ``faults`` of each kind, which are the methods of :class:`Storm` of that name, the
    mean seconds ``every`` which one strikes, and the workers' heartbeat and grace in seconds.

    A pause lasts one to two times the grace.
    """

    seed: int
    faults: Mapping[str, int]
    every: float
    heartbeat: int = 1
    grace: int = 2
    workers: int = 4
    patience: float = 120.0


class Storm:
    """Carries out a place's table with workers that are disturbed.

    Example:
        >>> with Storm(place, database, settings) as storm:
        ...     storm.run()
    """

    def __init__(
        self, place: Place, database: Database, settings: StormSettings, launch: Launch = launch
    ) -> None:
        self._place, self._database, self._settings = place, database, settings
        self._launch = launch
        self._random = Random(settings.seed)
        self._began = time.monotonic()
        self._due: list[tuple[float, Callable[[], None]]] = []
        self.workers: list[Worker] = []
        self.journal: list[str] = []
        self.left = [kind for kind, count in settings.faults.items() for _ in range(count)]
        self._random.shuffle(self.left)
        self.struck: Counter[str] = Counter()
        self.damage = Damage(place, self._random)
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
        words = [worker.last_words() for worker in self.workers[-2 * self._settings.workers :]]
        where = f"in {self._place.folder}; not struck: {self.left}"
        return "\n".join([self.summary(), where, *self.journal, *words])

    def summary(self) -> str:
        """The counts, in one line."""
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.struck.items()))
        seconds = time.monotonic() - self._began
        return f"a storm of seed {self._settings.seed}, {seconds:.0f} s: {counts}"

    def run(self) -> None:
        """Disturb until the table is done or no fault is left, then wait for the end."""
        following = 0.0
        while not self._done():
            now = time.monotonic() - self._began
            assert now < self._settings.patience, "the table does not come to its end"
            self._keep_up()
            for moment, action in [entry for entry in self._due if entry[0] <= now]:
                self._due.remove((moment, action))
                action()
            for path in self.damage.mend_refused(self.workers):
                self.struck["mended"] += 1
                self.journal.append(f"{now:7.2f} s  mended {path}")
            if now >= following and self.left and self._has_moved():
                self._strike(now)
                following = now + self._random.uniform(0.3, 1.7) * self._settings.every
            time.sleep(_TICK_SECONDS)
        self._calm()

    def _has_moved(self) -> bool:
        """Whether a run has progressed since the last fault: a slow machine is hit less."""
        for path in self._place.out.glob("*/seed-*/progress.json"):
            with suppress(FileNotFoundError):  # it has just been renamed
                if path.stat().st_mtime > self._struck:
                    return True
        return False

    def _done(self) -> bool:
        directories = [cell.directory(self._place.out) for cell in self._place.cells]
        return all(x.exists() for x in directories) and all(map(_has_result, directories))

    def _calm(self) -> None:
        """Undo lasting faults; the workers must notice by themselves that nothing is left."""
        for _, action in self._due:
            action()
        self._due.clear()
        self.damage.mend_rest()
        deadline = time.monotonic() + 5 * self._settings.grace + 60
        for worker in self.workers:
            while worker.lives:
                assert time.monotonic() < deadline, f"worker {worker.mark} does not end"
                time.sleep(_TICK_SECONDS)

    def _keep_up(self) -> None:
        """Replace workers that are gone; the very first one is ``run``, which writes the plan."""
        if not self.workers:
            self._start("run")
        planned = (self._place.out / "table.json").exists()
        while planned and sum(w.lives for w in self.workers) < self._settings.workers:
            self._start("run" if self._random.random() < 0.25 else "worker")

    def _start(self, how: str) -> None:
        place = self._place
        what = place.run if how == "run" else place.worker
        environment = place.environment(
            ABLATIONS_HEARTBEAT_SECONDS=str(self._settings.heartbeat),
            ABLATIONS_GRACE_SECONDS=str(self._settings.grace),
            OPTUNA_STORAGE=self._database.url,
        )
        command = place.command(*what, "--workers", "1")
        self.workers.append(Worker(self._launch, command, environment, place.folder))

    def _strike(self, now: float) -> None:
        """Cause the first of the faults left that is possible now."""
        victims = [worker for worker in self.workers if worker.lives and not worker.paused]
        if not victims:
            return
        victim = self._random.choice(victims)
        for kind in dict.fromkeys(self.left):
            if said := getattr(self, f"_{kind}")(victim):
                self.left.remove(kind)
                self.struck[kind] += 1
                self._struck = time.time()
                self.journal.append(f"{now:7.2f} s  {said}")
                return

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
        return self._kill_one("trial", worker.trials, worker)

    def _kill_fork_server(self, worker: Worker) -> str:
        return self._kill_one("fork server", worker.fork_servers, worker)

    def _kill_one(self, what: str, pids: Sequence[int], worker: Worker) -> str:
        if not pids:
            return ""
        pid = self._random.choice(pids)
        send(pid, signal.SIGKILL)
        return f"killed {what} {pid} of worker {worker.mark}"

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
        return self._later(self._settings.grace * self._random.uniform(1.0, 2.0), resume)

    def _stop_database(self, _worker: Worker) -> str:
        if not self._database.stop():
            return ""
        return f"stopped the database {self._later(self._settings.grace, self._database.start)}"

    def _delete_database(self, _worker: Worker) -> str:
        return "deleted the database" if self._database.delete() else ""

    def _fill_disk(self, worker: Worker) -> str:
        """So that a write fails halfway through a checkpoint, or at once."""
        size = int(2 ** self._random.uniform(10, 18))

        def set_limit(limit: int) -> None:
            fill_disk([worker.process.pid, *worker.descendants], limit)

        set_limit(size)
        how_long = self._later(self._settings.grace, lambda: set_limit(resource.RLIM_INFINITY))
        return f"files over {size} bytes find no room, for worker {worker.mark} {how_long}"

    def _flip_bit_of_run(self, worker: Worker) -> str:
        """Together with a crash: only a process that reads the file again sees the damage."""
        worker.end()
        path = self.damage.flip_bit_of_run()
        return f"killed worker {worker.mark} and flipped a bit of {path}" if path else ""

    def _flip_bit_of_data(self, _worker: Worker) -> str:
        for worker in self.workers:
            worker.end()
        path = self.damage.flip_bit_of_data()
        return f"killed all workers and flipped a bit of {path}" if path else ""

    def _later(self, seconds: float, action: Callable[[], None]) -> str:
        self._due.append((time.monotonic() - self._began + seconds, action))
        return f"for {seconds:.1f} s"


def _has_result(directory: Path) -> bool:
    with warnings.catch_warnings(action="ignore"):  # it may be damaged just now
        return read_result(directory) is not None
