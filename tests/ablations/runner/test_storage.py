"""The database: what is refused in one line, and that two processes may use it at once."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import optuna
import pytest
from sqlalchemy import text
from sqlalchemy.engine import URL

from ablations.files import STUDY_FILE
from ablations.runner.storage import (
    Heartbeat,
    delete_study,
    open_storage,
)
from ablations.runner.storage_url import display_url, storage_url
from tests.ablations.postgresql import Server
from transformer.errors import InputError


def refusal(url: URL) -> str:
    with pytest.raises(InputError) as caught, open_storage(url, Heartbeat()):
        pass
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_directory_has_a_database_of_its_own_unless_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert storage_url(None, tmp_path).database == str(tmp_path / STUDY_FILE)
    monkeypatch.setenv("OPTUNA_STORAGE", "postgresql://me:secret@host:1234/ours")
    url = storage_url(None, tmp_path)
    assert (url.drivername, url.host, url.database) == ("postgresql+psycopg", "host", "ours")
    assert display_url(url) == "postgresql://me:***@host:1234/ours"
    assert storage_url("sqlite:///mine.db", tmp_path).database == "mine.db"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("me:secret@host", "--storage is not the URL of a database"),
        ("mysql://me:secret@host/ours", "--storage names 'mysql', but it takes postgresql"),
        ("sqlite://", "--storage names 'sqlite', but it takes"),
    ],
)
def test_an_invalid_storage_url_is_refused(tmp_path: Path, given: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        storage_url(given, tmp_path)
    assert "secret" not in str(caught.value)


def test_a_wrong_password_is_refused_and_never_shown(tmp_path: Path, postgresql: Server) -> None:
    url = storage_url(postgresql.url(password="geheim7"), tmp_path)
    message = refusal(url)
    assert "password authentication failed" in message and ":***@" in message
    assert "geheim7" not in message


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    url = storage_url("postgresql://me:geheim7@127.0.0.1:9/ours", tmp_path)
    message = refusal(url)
    assert "postgresql://me:***@127.0.0.1:9/ours cannot be used" in message
    assert "refused" in message and "geheim7" not in message


def test_a_servers_database_that_takes_the_place_of_another_is_refused(
    tmp_path: Path, postgresql: Server
) -> None:
    url = storage_url(postgresql.create("replaced"), tmp_path)
    with open_storage(url, Heartbeat()) as storage:
        delete_study(storage, "none")
        postgresql.drop("replaced")
        postgresql.create("replaced")
        with pytest.raises(InputError, match="/replaced was deleted or replaced while it was in"):
            delete_study(storage, "none")


def test_another_versions_tables_are_refused(url: URL) -> None:
    with open_storage(url, Heartbeat()) as storage, storage.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'v0.9.0.a'"))
        connection.execute(text("UPDATE version_info SET schema_version = 9"))
    message = refusal(url)
    assert "another version" in message or "may be deleted" in message


def test_a_study_is_deleted_alone(url: URL) -> None:
    with open_storage(url, Heartbeat()) as storage:
        for name in ("one", "two"):
            study = optuna.create_study(storage=storage, study_name=name)
            study.enqueue_trial({}, user_attrs={"cell": name})
        delete_study(storage, "one")
        delete_study(storage, "one")  # which is no fault
        assert optuna.get_all_study_names(storage) == ["two"]
        assert len(storage.get_all_trials(storage.get_study_id_from_name("two"))) == 1


def test_a_broken_file_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / STUDY_FILE).write_text("no database " * 100)
    assert "file is not a database" in refusal(storage_url(None, tmp_path))
    nowhere = storage_url(f"sqlite:///{tmp_path}/not/there.db", tmp_path)
    assert "unable to open database file" in refusal(nowhere)


def test_many_processes_may_create_the_tables_at_once(tmp_path: Path, postgresql: Server) -> None:
    urls = [
        storage_url(None, tmp_path),
        storage_url(postgresql.create("at-once"), tmp_path),
    ]
    for url in urls:
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(_opens, [url] * 4))


def _opens(url: URL) -> bool:
    with open_storage(url, Heartbeat()) as storage:
        return storage.get_all_studies() == []


def test_writers_of_sqlite_wait_for_each_other(tmp_path: Path) -> None:
    with open_storage(storage_url(None, tmp_path), Heartbeat()) as storage:
        with storage.engine.begin():
            other = sqlite3.connect(tmp_path / STUDY_FILE, timeout=0, isolation_level=None)
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN IMMEDIATE")
        other.execute("BEGIN IMMEDIATE")
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        other.close()


@pytest.mark.parametrize(
    ("heartbeat", "grace", "message"),
    [
        ("x", "", "ABLATIONS_HEARTBEAT_SECONDS is 'x', but must be a whole number"),
        ("5", "5", "the second larger than the first"),
        ("0", "5", "the first must be at least 1"),
    ],
)
def test_an_unusable_heartbeat_is_refused(
    monkeypatch: pytest.MonkeyPatch, heartbeat: str, grace: str, message: str
) -> None:
    monkeypatch.setenv("ABLATIONS_HEARTBEAT_SECONDS", heartbeat)
    monkeypatch.setenv("ABLATIONS_GRACE_SECONDS", grace)
    with pytest.raises(InputError, match=message):
        Heartbeat.from_environment()
