"""A table on disk, and a dashboard that shows it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from ablations.dashboard.page import Page
from ablations.dashboard.server import Server
from ablations.tables.plan_file import claim_plan
from ablations.tables.table import Cell
from tests.ablations.samples import finish, leave_curve, small_plan
from tests.ablations.status.samples import CRASH, begin, training


def get(address: str, **headers: str) -> requests.Response:
    """The answer to one request."""
    return requests.get(address, headers=headers, timeout=30)


@contextmanager
def serving(page: Page, port: int = 0) -> Generator[str]:
    """The address of a dashboard that only this machine can reach, while the context is open."""
    server = Server(("127.0.0.1", port), page)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    with server:
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


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
def address(root: Path) -> Generator[str]:
    """That of a dashboard which reads the files again at each request."""
    with serving(Page([root], interval=0.0)) as address:
        yield address
