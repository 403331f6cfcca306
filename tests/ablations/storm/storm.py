"""A storm: random faults, reproducible by their seed, while the same command is given again."""

from __future__ import annotations

import resource
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from experiments.command_line import BAD_INPUT
from experiments.records.run import locate, read_run
from tests.ablations.storm.place import Place
from tests.ablations.storm.processes import DriverProcess, parent_of, send
from tests.ablations.storm.ray_cluster import ENVIRONMENT, RayCluster

_SEED = 1
_TICK_SECONDS = 0.02
_EVERY_SECONDS = 3.0  # the mean between faults
_PATIENCE_SECONDS = 3500.0  # until the table must be done
# Another digit in these would go unnoticed, so the bit that is flipped makes them unreadable.
_WITHOUT_CHECKSUM = ("attempt.json", "config.json", "progress.json", "result.json")
_UNDER_WAY = ("*.json", "vocabulary.model", "checkpoints/step-*.ckpt")


@dataclass(frozen=True, slots=True)
class FlippedBit:
    """A file that was changed at ``moment``; ``cell`` is its run's directory, None of data."""

    path: Path
    cell: Path | None
    moment: float
    sound: bytes
    damaged: bytes

    def mend(self) -> None:
        """Restore the file, unless it has been replaced since."""
        path = self.path if self.cell is None else locate(self.cell) / self.path.name
        with suppress(FileNotFoundError):
            if path.read_bytes() == self.damaged:
                _overwrite(path, self.sound)


class Damage:
    """Flips bits in the files of a place, and restores those that a driver cannot make again.

    Attributes:
        unmended: what a driver must refuse by name, and has not yet
    """

    def __init__(self, place: Place, random: Random) -> None:
        self._place, self._random = place, random
        self.unmended: list[FlippedBit] = []

    def flip_bit_of_run(self) -> Path | None:
        """Flip one bit of a file of a run in progress, or of a result; the file."""
        stems = [cell.directory(self._place.out) for cell in self._place.cells]
        files = [
            (stem, path)
            for stem, directory in ((stem, locate(stem)) for stem in stems)
            for name in (("result.json",) if directory == stem else _UNDER_WAY)
            for path in directory.glob(name)
        ]
        if not files:
            return None
        kind = self._random.choice(sorted({path.suffix for _, path in files}))
        return self._flip(*self._random.choice(sorted(x for x in files if x[1].suffix == kind)))

    def flip_bit_of_data(self) -> Path | None:
        """Flip one bit of a prepared file or of a text, once a run has begun with them."""
        if not any(self._place.out.glob("*/seed-*/data.json")):
            return None
        prepared = [path for path in self._place.cache.glob("prepared/*/**/*") if path.is_file()]
        files = self._random.choice([prepared, list(self._place.texts.iterdir())])
        return self._flip(None, self._random.choice(sorted(files)))

    def _flip(self, cell: Path | None, path: Path) -> Path | None:
        sound = path.read_bytes()
        if not sound:
            return None
        damaged = bytearray(sound)
        bit = 0x80 if path.name in _WITHOUT_CHECKSUM else 1 << self._random.randrange(8)
        damaged[self._random.randrange(len(sound))] ^= bit
        _overwrite(path, bytes(damaged))
        if cell is None or path.name == "data.json":
            flipped = FlippedBit(path, cell, time.monotonic(), sound, bytes(damaged))
            self.unmended.append(flipped)
        return path

    def mend_refused(self, drivers: Sequence[DriverProcess]) -> list[Path]:
        """Restore the files that a later driver has refused by name; their paths."""
        refused: list[FlippedBit] = []
        for bit in self.unmended:
            later = [driver for driver in drivers if driver.started_at > bit.moment]
            words = [each.last_words() for each in later if each.process.poll() == BAD_INPUT]
            if any(bit.path.name in said for said in words):
                bit.mend()
                refused.append(bit)
        self.unmended = [bit for bit in self.unmended if bit not in refused]
        return [bit.path for bit in refused]


def _overwrite(path: Path, content: bytes) -> None:
    """Change the file in place: others may have it mapped into their memory."""
    with path.open("r+b") as file:
        file.write(content)


def fill_disk(pids: Iterable[int], size: int) -> None:
    """Let those processes write no file beyond ``size`` bytes, as if the disk were full."""
    for pid in pids:
        with suppress(ProcessLookupError):
            _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, most))


class Storm:
    """Carries out a place's table with drivers that are disturbed, on this machine.

    Args:
        place: where the table is
        faults: how many there are of each kind, which are the methods here of that name
        pause: seconds that a pause lasts, or up to twice as long
    """

    options: Sequence[str] = ("--workers", "3")
    variables: Mapping[str, str] = {}

    def __init__(self, place: Place, faults: Mapping[str, int], *, pause: float) -> None:
        self._place, self._pause = place, pause
        self._random = Random(_SEED)
        self._began = time.monotonic()
        self._due: list[tuple[float, Callable[[], None]]] = []
        self.drivers: list[DriverProcess] = []
        self.journal: list[str] = []
        self.left = [kind for kind, count in faults.items() for _ in range(count)]
        self._random.shuffle(self.left)
        self.struck: Counter[str] = Counter()
        self.damage = Damage(place, self._random)
        self._struck = 0.0  # by the clock of the file system

    def __enter__(self) -> Storm:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for driver in self.drivers:
            driver.end()
        if error is not None:
            words = [driver.last_words() for driver in self.drivers[-4:]]
            where = f"in {self._place.folder}; not struck: {self.left}"
            error.add_note("\n".join([self.summary(), where, *self.journal, *words]))

    def summary(self) -> str:
        """The counts, in one line."""
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.struck.items()))
        seconds = time.monotonic() - self._began
        return f"a storm of seed {_SEED}, {seconds:.0f} s: {counts}"

    def run(self) -> None:
        """Disturb until the table is done or no fault is left; then nothing may be left to do."""
        following = 0.0
        while not self._done():
            now = time.monotonic() - self._began
            assert now < _PATIENCE_SECONDS, "the table does not come to its end"
            if not self.drivers or not self.drivers[-1].lives:
                self._start()
            for moment, action in [entry for entry in self._due if entry[0] <= now]:
                self._due.remove((moment, action))
                action()
            for path in self.damage.mend_refused(self.drivers):
                self.struck["mended"] += 1
                self.journal.append(f"{now:7.2f} s  mended {path}")
            if now >= following and self.left and self._has_moved():
                self._strike(now)
                following = now + self._random.uniform(0.3, 1.7) * _EVERY_SECONDS
            time.sleep(_TICK_SECONDS)
        for action in [*(x for _, x in self._due), *(x.mend for x in self.damage.unmended)]:
            action()
        self.drivers[-1].process.wait(120)
        assert self._start().process.wait(120) == 0

    def _has_moved(self) -> bool:
        """Whether a run has progressed since the last fault: a slow machine is hit less."""
        for path in self._place.out.glob("*/seed-*/progress.json"):
            with suppress(FileNotFoundError):  # it has just been renamed
                if path.stat().st_mtime > self._struck:
                    return True
        return False

    def _done(self) -> bool:
        directories = [cell.directory(self._place.out) for cell in self._place.cells]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return all(x.exists() and read_run(x).is_at_end for x in directories)

    def _start(self) -> DriverProcess:
        command = self._place.command(*self._place.run, *self.options)
        environment = self._place.environment(**self.variables)
        self.drivers.append(DriverProcess(command, environment, self._place.folder))
        return self.drivers[-1]

    def _strike(self, now: float) -> None:
        """Cause the first of the faults left that is possible now."""
        driver = self.drivers[-1]
        for kind in dict.fromkeys(self.left) if driver.lives else ():
            if said := getattr(self, f"_{kind}")(driver):
                self.left.remove(kind)
                self.struck[kind] += 1
                self._struck = time.time()
                self.journal.append(f"{now:7.2f} s  {said}")
                return

    def _kill_driver(self, driver: DriverProcess) -> str:
        send(driver.process.pid, signal.SIGKILL)
        return f"killed driver {driver.mark}"

    def _kill_run(self, driver: DriverProcess) -> str:
        return self._kill_one("run", driver.runs)

    def _kill_supervisor(self, driver: DriverProcess) -> str:
        """The fork server of this machine's runs, or the process of Ray's that started one."""
        return self._kill_one("the parent of runs", driver.parents_of_runs)

    def _kill_one(self, what: str, pids: Sequence[int]) -> str:
        if not pids:
            return ""
        pid = self._random.choice(pids)
        send(pid, signal.SIGKILL)
        return f"killed {what}, {pid}"

    def _kill_all(self, driver: DriverProcess) -> str:
        driver.send_all(signal.SIGKILL)
        return f"killed driver {driver.mark} and all its processes"

    def _pause_all(self, driver: DriverProcess) -> str:
        driver.send_all(signal.SIGSTOP)
        return f"paused all {self._later(lambda: driver.send_all(signal.SIGCONT))}"

    def _pause_run(self, driver: DriverProcess) -> str:
        """Together with a kill of its driver: the next one takes the run over meanwhile."""
        if not driver.runs:
            return ""
        pid = self._random.choice(driver.runs)
        send(pid, signal.SIGSTOP)
        send(driver.process.pid, signal.SIGKILL)
        return (
            f"paused run {pid}, killed its driver {self._later(lambda: send(pid, signal.SIGCONT))}"
        )

    def _second_driver(self, driver: DriverProcess) -> str:
        lock = self._place.out / ".driver.lock"
        if not lock.exists() or f"process {driver.process.pid} " not in lock.read_text():
            return ""  # it has not come to that yet
        second, deadline = self._start(), time.monotonic() + 120
        while driver.lives and second.lives:  # else the second one goes on in its place
            assert time.monotonic() < deadline, "it hangs"
            time.sleep(_TICK_SECONDS)
        if driver.lives:
            words = self.drivers.pop().last_words()
            assert second.process.poll() == BAD_INPUT and "is being worked on by" in words, words
        return "started a second driver"

    def _fill_disk(self, driver: DriverProcess) -> str:
        """So that a write fails halfway through a checkpoint, or at once."""
        size = int(2 ** self._random.uniform(10, 18))

        def set_limit(limit: int) -> None:
            fill_disk([driver.process.pid, *driver.descendants], limit)

        set_limit(size)
        how_long = self._later(lambda: set_limit(resource.RLIM_INFINITY))
        return f"files over {size} bytes find no room {how_long}"

    def _flip_bit_of_run(self, driver: DriverProcess) -> str:
        """Together with a crash: only a process that reads the file again sees the damage."""
        return self._flip(driver, self.damage.flip_bit_of_run)

    def _flip_bit_of_data(self, driver: DriverProcess) -> str:
        return self._flip(driver, self.damage.flip_bit_of_data)

    def _flip(self, driver: DriverProcess, flip: Callable[[], Path | None]) -> str:
        driver.end()
        path = flip()
        return f"killed all and flipped a bit of {path}" if path else ""

    def _damage_journal(self, driver: DriverProcess) -> str:
        driver.end()
        path = self._place.out / "study.log"
        if not path.exists():
            return ""
        content = path.read_bytes()
        path.write_bytes(content[: self._random.randrange(len(content) + 1)])
        return "killed all and cut the journal"

    def _later(self, action: Callable[[], None]) -> str:
        seconds = self._pause * self._random.uniform(1.0, 2.0)
        self._due.append((time.monotonic() - self._began + seconds, action))
        return f"for {seconds:.1f} s"


class RayStorm(Storm):
    """As a storm on this machine, with three nodes of one run each, which are lost and added."""

    variables = ENVIRONMENT

    def __init__(
        self, cluster: RayCluster, place: Place, faults: Mapping[str, int], *, pause: float
    ) -> None:
        super().__init__(place, faults, pause=pause)
        self._cluster = cluster
        self.options = ("--ray", cluster.address)
        self._raylets = [cluster.add_node(1) for _ in range(3)]

    def _kill_node(self, _driver: DriverProcess) -> str:
        raylet = self._random.choice(self._raylets)
        self._cluster.remove_node(raylet)
        return f"lost node {raylet}, added {self._replace(raylet)}"

    def _pause_node(self, driver: DriverProcess) -> str:
        """For so long that the cluster gives it up; what wakes up then must write nothing."""
        running = {parent_of(parent_of(pid)): pid for pid in driver.runs}
        raylet = next((x for x in running if x in self._raylets), None)
        if raylet is None:
            return ""
        paused = [raylet, parent_of(running[raylet]), running[raylet]]
        for pid in paused:
            send(pid, signal.SIGSTOP)

        def wake() -> None:
            for pid in paused:
                send(pid, signal.SIGCONT)

        return f"paused node {raylet} {self._later(wake)}, added {self._replace(raylet)}"

    def _replace(self, raylet: int) -> int:
        self._raylets.remove(raylet)
        self._raylets.append(self._cluster.add_node(1))
        return self._raylets[-1]
