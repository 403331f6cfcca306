"""Exactly once: whatever is killed, paused or gone for a while, a table ends as if nothing was.

A failure tells the seed, what was hit when, the ends of the workers' logs and where all of it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from ablations.runner.forkserver import PRELOADED
from ablations.runner.storage_url import STUDY_FILE
from tests.ablations.postgresql import Server
from tests.ablations.storm.databases import Database, PostgreSQL, SQLite
from tests.ablations.storm.place import Place, make_place
from tests.ablations.storm.prefork import Prefork
from tests.ablations.storm.storm import Storm, StormSettings
from tests.ablations.storm.undisturbed import (
    assert_as_undisturbed,
    assert_tidy,
    run_undisturbed,
)

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="a fleet's processes are found in /proc"
)


def _database(kind: str, place: Place, request: pytest.FixtureRequest) -> Database:
    if kind == "sqlite":
        return SQLite(place.out / STUDY_FILE)
    server: Server = request.getfixturevalue("postgresql")
    return PostgreSQL(server, place.folder.name)


OF_STAND_INS = {
    "kill_worker": 2,
    "kill_leader": 2,
    "kill_trial": 3,
    "kill_host": 1,
    "pause_host": 1,
    "pause_worker": 1,
    "stop_database": 1,
}
OF_TRAINING = {
    "kill_worker": 4,
    "kill_leader": 4,
    "kill_trial": 8,
    "kill_fork_server": 6,
    "kill_host": 4,
    "pause_host": 2,
    "pause_worker": 3,
    "stop_database": 3,
    "delete_database": 3,
    "fill_disk": 6,
    "flip_bit_of_run": 9,
    "flip_bit_of_data": 3,
}


@pytest.fixture(scope="module")
def prefork() -> Iterator[Prefork]:
    prefork = Prefork()
    yield prefork
    prefork.close()


def _storm_of_stand_ins(
    kind: str,
    faults: Mapping[str, int],
    seeds: tuple[int, ...],
    prefork: Prefork,
    folder: Path,
    request: pytest.FixtureRequest,
) -> Storm:
    """Carry out a table of eight rows, and check that it ended as an undisturbed one."""
    place = make_place(folder, steps=40, every=7, step_seconds=0.02, seeds=seeds)
    database = _database(kind, place, request)
    settings = StormSettings(seed=1, faults=faults, every=0.5, workers=1 + len(seeds))
    with Storm(place, database, settings, prefork.launch) as storm:
        storm.run()
        assert_as_undisturbed(place, run_undisturbed(place, folder / "undisturbed"), database.url)
    return storm


def test_a_table_of_stand_ins_survives_a_kill_of_everything(
    prefork: Prefork, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kills = {"kill_leader": 1, "kill_trial": 1, "kill_host": 1}
    storm = _storm_of_stand_ins("sqlite", kills, (1,), prefork, tmp_path, request)
    assert storm.left == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_table_of_stand_ins_comes_through_a_storm(
    kind: str, prefork: Prefork, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    storm = _storm_of_stand_ins(kind, OF_STAND_INS, (1, 2, 3), prefork, tmp_path, request)
    assert storm.struck.total() >= 5


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same trained table without a fleet."""
    place = _trained_table(tmp_path_factory.mktemp("undisturbed"))
    return run_undisturbed(place, place.folder / "undisturbed")


def _trained_table(folder: Path) -> Place:
    return make_place(folder, steps=480, every=7, step_seconds=None, seeds=(1,))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_trained_table_comes_through_a_storm(
    kind: str,
    undisturbed: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = _trained_table(tmp_path)
    database = _database(kind, place, request)
    settings = StormSettings(
        seed=1, faults=OF_TRAINING, every=2, heartbeat=1, grace=4, workers=3, patience=800
    )
    with (
        closing(Prefork(PRELOADED)) as prefork,
        Storm(place, database, settings, prefork.launch) as storm,
    ):
        storm.run()
        with capsys.disabled():
            print(f"\n{kind}: {storm.summary()}")
        assert_as_undisturbed(place, undisturbed, database.url, storm.damage.flipped)
        assert_tidy(place)
        assert storm.struck.keys() >= OF_TRAINING.keys(), "the table was done before"
