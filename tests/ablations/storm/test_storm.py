"""Exactly once: whatever is killed, paused or gone for a while, a table ends as if nothing was.

A failure tells the seed, what was hit when, the ends of the workers' logs and where all of it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ablations.fleet.storage import STUDY_FILE
from tests.ablations.postgresql import Server
from tests.ablations.storm.databases import Database, PostgreSQL, SQLite
from tests.ablations.storm.nursery import Nursery
from tests.ablations.storm.place import Place, make_place
from tests.ablations.storm.storm import Storm, Weather
from tests.ablations.storm.undisturbed import assert_as_undisturbed, run_undisturbed

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="a fleet's processes are found in /proc"
)


def _database(kind: str, place: Place, request: pytest.FixtureRequest) -> Database:
    if kind == "sqlite":
        return SQLite(place.out / STUDY_FILE)
    server: Server = request.getfixturevalue("postgresql")
    return PostgreSQL(server, place.folder.name)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_table_of_stand_ins_comes_through_a_storm(
    kind: str, nursery: Nursery, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = make_place(tmp_path, steps=40, every=7, step_seconds=0.02)
    database = _database(kind, place, request)
    weather = Weather(seed=1, faults=11, every=0.5)
    with Storm(place, database, weather, nursery.launch) as storm:
        storm.blow()
        assert storm.faults >= 5
        assert_as_undisturbed(place, run_undisturbed(place, tmp_path / "undisturbed"), database.url)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_trained_tables_come_through_a_hundred_kills(
    kind: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    undisturbed: Path | None = None
    seed = kills = 0
    while kills < 100:
        seed += 1
        folder = tmp_path_factory.mktemp(f"storm-{kind}-{seed}")
        place = make_place(folder, steps=300, every=23, step_seconds=None)
        undisturbed = undisturbed or run_undisturbed(place, folder / "undisturbed")
        database = _database(kind, place, request)
        weather = Weather(seed=seed, faults=100, every=3, heartbeat=1, grace=5, patience=1500)
        with Storm(place, database, weather) as storm:
            storm.blow()
            kills += storm.kills
            assert_as_undisturbed(place, undisturbed, database.url)
