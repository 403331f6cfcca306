"""Two hosts that share PostgreSQL and the directory of the runs, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ablations.runner.attempts import newest
from ablations.tables.table import Cell
from experiments.run.attempt import Attempt, read_attempt
from experiments.run.progress import read_progress
from tests.ablations.postgresql import Server, programs
from tests.ablations.storm.fleet import Worker, launch
from tests.ablations.storm.hosts import Host, Link, need_hosts
from tests.ablations.storm.place import Place, make_place
from tests.ablations.storm.undisturbed import assert_as_undisturbed, run_undisturbed

_GRACE_SECONDS = 4


class Site:
    """Two hosts, each with a cable to a third one that runs the database."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.place = make_place(folder, steps=40, every=3, step_seconds=0.05)
        self._stack = stack
        database = self._host("database")
        self.hosts = [self._host(name) for name in ("first", "second")]
        self.links = [Link(database, host, number) for number, host in enumerate(self.hosts)]
        listen = ",".join(link.here for link in self.links)
        self._server = Server(programs(), address=listen, network=database.pid)
        stack.callback(self._server.close)
        self._server.start()
        self._server.create("fleet")

    @property
    def own_storage(self) -> str:
        """The storage's URL for this process, on no network."""
        return self._server.local_url("fleet")

    def _host(self, name: str) -> Host:
        host = Host(name)
        self._stack.callback(host.close)
        return host

    def start(self, number: int, step_seconds: float, workers: int, *what: str | Path) -> Worker:
        """A worker on a host, with folders of its own for all that is not the table's."""
        host, link = self.hosts[number], self.links[number]
        own = self.place.folder / host.name
        own.mkdir()
        url = self._server.url("fleet", address=link.here)
        command = self.place.command(*what, "--workers", str(workers))
        environment = self.place.environment(
            OPTUNA_STORAGE=url,
            ABLATIONS_HEARTBEAT_SECONDS="1",
            ABLATIONS_GRACE_SECONDS=str(_GRACE_SECONDS),
            STORM_STEP_SECONDS=str(step_seconds),
            TMPDIR=str(own),
            DATA_CACHE=str(own / "cache"),
        )
        worker = Worker(launch, host.command(command), environment, own)
        self._stack.callback(worker.end)
        return worker


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    need_hosts()
    with ExitStack() as stack:
        yield Site(tmp_path, stack)


def _wait(holds: Callable[[], bool], *workers: Worker) -> None:
    deadline = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < deadline, "\n".join(each.last_words() for each in workers)
        time.sleep(0.05)


def _attempt(place: Place, cell: Cell) -> Attempt | None:
    directory = newest(cell.directory(place.out))
    return directory and read_attempt(directory)


def _step(place: Place, cell: Cell, host: str) -> int:
    """How far the attempt of that host has come; 0 if it is not the newest."""
    attempt, directory = _attempt(place, cell), newest(cell.directory(place.out))
    progress = directory and read_progress(directory)
    return progress.step if attempt and progress and attempt.host == host else 0


@pytest.mark.slow
def test_a_host_that_is_cut_off_is_replaced_and_comes_back(site: Site, tmp_path: Path) -> None:
    place = site.place
    first = site.start(0, 0.05, 3, *place.run)
    _wait(lambda: (place.out / "table.json").exists(), first)
    second = site.start(1, 0.7, 1, *place.worker)

    def of_second() -> list[Cell]:
        return [cell for cell in place.cells if _step(place, cell, "second")]

    _wait(lambda: bool(of_second()), first, second)
    (cell,) = of_second()
    site.links[1].cut()
    before = _step(place, cell, "second")
    _wait(lambda: _step(place, cell, "second") > before, second)  # training needs no storage
    _wait(lambda: (found := _attempt(place, cell)) is not None and found.host == "first", first)
    site.links[1].mend()
    _wait(lambda: not first.lives and not second.lives, first, second)

    assert (first.process.returncode, second.process.returncode) == (0, 0), second.last_words()
    assert f"{cell}: another attempt has taken it over" in second.log.read_text()
    ended = _attempt(place, cell)
    assert ended is not None and (ended.host, ended.number) == ("first", 2)
    assert_as_undisturbed(place, run_undisturbed(place, tmp_path / "alone"), site.own_storage)
