"""The server that tests stand on: it refuses, it breaks off, and it leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests.ablations.postgresql import Server


def ask(url: str, question: str = "SELECT 17") -> object:
    with psycopg.connect(url.replace("+psycopg", ""), connect_timeout=2) as connection:
        row = connection.execute(question.encode()).fetchone()
        return row and row[0]


def test_databases_are_apart_and_a_password_counts(postgresql: Server) -> None:
    one, other = postgresql.create("one"), postgresql.create("other")
    with psycopg.connect(one.replace("+psycopg", "")) as connection:
        connection.execute("CREATE TABLE here (number int)")
    assert ask(one, "SELECT count(*) FROM here") == 0
    with pytest.raises(psycopg.errors.UndefinedTable):
        ask(other, "SELECT count(*) FROM here")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        ask(postgresql.url(password="wrong"))


def test_it_is_stopped_and_started_again_with_what_it_held(postgresql: Server) -> None:
    url = postgresql.create("kept")
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 19 AS number")
    postgresql.stop()
    with pytest.raises(psycopg.OperationalError, match="refused"):
        ask(url)
    postgresql.start()
    assert ask(url, "SELECT number FROM kept") == 19


def test_a_paused_one_answers_nobody(postgresql: Server) -> None:
    postgresql.pause()
    try:
        with pytest.raises(psycopg.OperationalError, match="timeout"):
            ask(postgresql.url())
    finally:
        postgresql.resume()
    assert ask(postgresql.url()) == 17


KILLED = """
import os, signal
from tests.ablations.postgresql import Server, programs

server = Server(programs())
server.start()
print(server.url(), server._folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_behind_by_tests_that_were_killed(postgresql: Server) -> None:
    del postgresql  # skips where there is none
    said = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, check=False
    ).stdout
    url, folder = said.split()
    deadline = time.monotonic() + 10
    while Path(folder).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(psycopg.OperationalError, match="refused"):
        ask(url)
