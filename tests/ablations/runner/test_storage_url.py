"""All workers of a directory use one storage."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ablations.runner.storage_url import register_storage, storage_url
from transformer.errors import InputError

GRACE = 30
POSTGRESQL = "postgresql://me:secret@{}/ours"


def busy(root: Path, seconds_ago: float) -> None:
    path = root / "base" / "seed-1.attempt-2" / "progress.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    then = time.time() - seconds_ago
    os.utime(path, (then, then))


def test_another_storage_is_refused_while_workers_are_active(tmp_path: Path) -> None:
    register_storage(tmp_path, storage_url(None, tmp_path), GRACE)
    busy(tmp_path, 5)
    register_storage(tmp_path, storage_url(None, tmp_path), GRACE)
    with pytest.raises(InputError, match=r"SQLite's study\.sqlite3, not Postgre") as x:
        register_storage(tmp_path, storage_url(POSTGRESQL.format("a"), tmp_path), GRACE)
    assert "secret" not in str(x.value)


def test_another_storage_is_accepted_when_no_worker_is_active(tmp_path: Path) -> None:
    register_storage(tmp_path, storage_url(None, tmp_path), GRACE)
    busy(tmp_path, 60)
    register_storage(tmp_path, storage_url(POSTGRESQL.format("a"), tmp_path), GRACE)
    assert "secret" not in (tmp_path / "fleet.json").read_text()


def test_one_server_may_have_several_host_names(tmp_path: Path) -> None:
    register_storage(tmp_path, storage_url(POSTGRESQL.format("localhost"), tmp_path), GRACE)
    busy(tmp_path, 5)
    register_storage(tmp_path, storage_url(POSTGRESQL.format("10.0.0.1:5432"), tmp_path), GRACE)


def test_one_directory_may_have_several_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_storage(tmp_path, storage_url(None, tmp_path), GRACE)
    busy(tmp_path, 5)
    monkeypatch.chdir(tmp_path.parent)
    register_storage(Path(tmp_path.name), storage_url(None, Path(tmp_path.name)), GRACE)
