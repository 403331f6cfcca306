"""A table on disk, and a client of a dashboard that shows the folder it is in."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from ablations.dashboard.app import make_app
from ablations.dashboard.directories import Directories
from ablations.tables.plan import claim_plan
from ablations.tables.table import Cell
from tests.ablations.samples import finish, leave_curve, small_plan
from tests.ablations.status.samples import CRASH, begin, training

with warnings.catch_warnings():
    # Starlette 1.10 prefers httpx2, which is not on every machine.
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

__all__ = ["TestClient"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a table: of two rows and seeds one run is done, one in training, one failed."""
    directory = tmp_path / "runs" / "pair-tiny"
    claim_plan(directory, small_plan(seeds=(1, 2)))
    finish(directory, Cell("base", 1), 4.92, 25.8)
    running = begin(directory, "base/seed-2", training(600, loss=2.5, tokens_per_second=14_300.0))
    leave_curve(running, {200: 90.0, 400: 40.0})
    begin(directory, "narrow/seed-1", training(700), given_up=True, failures=(CRASH,))
    return tmp_path / "runs"


@pytest.fixture
def client(root: Path) -> Iterator[TestClient]:
    """Each request reads the files again."""
    app = make_app(Directories([root], interval=0.0), "127.0.0.1")
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client
