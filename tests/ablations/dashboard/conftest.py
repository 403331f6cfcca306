"""A table on disk, and a dashboard that shows it."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from email.message import Message
from pathlib import Path
from typing import NamedTuple

import pytest

from ablations.dashboard.page import Page
from ablations.dashboard.server import Server
from ablations.tables.plan import claim_plan
from ablations.tables.table import Cell
from tests.ablations.samples import finish, leave_curve, small_plan
from tests.ablations.status.samples import CRASH, begin, training


class Answer(NamedTuple):
    """What the server answers."""

    status: int
    headers: Message
    text: str


class Client:
    """Asks the server at ``address``."""

    def __init__(self, address: str) -> None:
        self._host = address.removeprefix("http://")

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """The answer to one request; its ``headers`` replace the usual ones."""
        with closing(http.client.HTTPConnection(self._host, timeout=30)) as connection:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read().decode())


@contextmanager
def serving(page: Page) -> Generator[str]:
    """The address of a dashboard that only this machine can reach, while the context is open."""
    server = Server(("127.0.0.1", 0), page)
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
def client(root: Path) -> Iterator[Client]:
    """Each request reads the files again."""
    with serving(Page([root], interval=0.0)) as address:
        yield Client(address)
