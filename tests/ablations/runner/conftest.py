"""The databases that workers share, an empty one for each test, and the runs of experiments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from optuna.storages import RDBStorage
from sqlalchemy.engine import URL

from ablations.files import STUDY_FILE
from ablations.runner.storage import Heartbeat, open_storage
from ablations.runner.storage_url import storage_url
from tests.ablations.postgresql import Server
from tests.ablations.samples import empty_study
from tests.experiments.conftest import begin, command, folder

__all__ = ["begin", "command", "folder"]

OpenStorage = Callable[[URL], RDBStorage]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> URL:
    """Where the storage of the directory ``tmp_path`` is."""
    if request.param == "sqlite":
        (tmp_path / STUDY_FILE).write_bytes(empty_study())
        return storage_url(None, tmp_path)
    server = request.getfixturevalue("postgresql")
    return storage_url(server.create(tmp_path.name, _template(server)), tmp_path)


@functools.cache
def _template(server: Server) -> str:
    """A database with Optuna's tables, to copy: making them takes longer than most tests."""
    with open_storage(storage_url(server.create("template"), Path()), Heartbeat()):
        return "template"


@pytest.fixture
def open_() -> Iterator[OpenStorage]:
    """Opens a storage as each worker does for itself, until the end of the test."""
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(open_storage(url, Heartbeat(1, 2)))
