"""optuna-dashboard on a table's study, which it cannot change."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from ablations.dashboard.optuna_view import _copy, _version
from ablations.runner.storage import Heartbeat, open_storage
from ablations.runner.storage_url import register_storage, storage_url
from ablations.tables.plan import load_plan
from tests.ablations.dashboard.conftest import TestClient

pytest.importorskip("optuna_dashboard", reason="optuna-dashboard is not installed")


def test_a_study_is_shown_and_cannot_be_changed(client: TestClient, root: Path) -> None:
    table = root / "pair-tiny"
    url = storage_url(None, table)
    assert "Optuna dashboard" not in client.get("/").text
    with open_storage(url, Heartbeat()) as storage:
        register_storage(table, url, 60.0)
        optuna.create_study(storage=storage, study_name="another")
        study = optuna.create_study(storage=storage, study_name=load_plan(table).study)
        study.set_user_attr("note", "in the log of SQLite only")
        files = {path: path.read_bytes() for path in table.glob("study.sqlite3*")}
        assert "/dashboard/studies/1" in client.get("/").text
        page = client.get("/dashboard/studies/1")
        assert '<script defer src="/static/bundle.js">' in page.text
        listed = client.get("/api/studies").json()["study_summaries"]
        assert [(x["study_id"], x["study_name"]) for x in listed] == [(1, study.study_name)]
        assert "in the log of SQLite only" in client.get("/api/studies/1").text
        for method in ("POST", "DELETE"):
            assert client.request(method, "/api/studies/1").status_code == 405
        assert client.get("/api/studies/2").status_code == 404
        assert {path: path.read_bytes() for path in table.glob("study.sqlite3*")} == files


def test_a_database_that_is_written_meanwhile_is_copied_whole(tmp_path: Path) -> None:
    source = tmp_path / "study.sqlite3"
    url = storage_url(f"sqlite:///{source}", tmp_path)
    with open_storage(url, Heartbeat()) as storage:
        study = optuna.create_study(storage=storage, study_name="s")
        for number in range(5):
            study.add_trial(optuna.trial.create_trial(value=float(number)))
            before = _version(source)
            assert _copy(source, tmp_path / "copy.sqlite3") == before
            copied = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path}/copy.sqlite3")
            assert len(copied.trials) == number + 1
            for suffix in ("", "-wal", "-shm"):
                (tmp_path / f"copy.sqlite3{suffix}").unlink(missing_ok=True)
