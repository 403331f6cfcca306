"""A real PostgreSQL server for tests: fresh, with a password, and gone at the end.

Where none is installed, the tests that need one are skipped with the reason.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import psycopg
import pytest

_ROLE = "fleet"
_PATIENCE_SECONDS = 30.0
# A crash of the machine is not what is tested; of the server it is, which these settings survive.
_SETTINGS = ("fsync=off", "full_page_writes=off", "shared_buffers=16MB", "max_connections=60")
_HBA = "host all all all scram-sha-256\nlocal all all scram-sha-256\n"

_Process = subprocess.Popen[bytes]

# Outlives the tests, however they end: it waits for the end of its standard input.
_CLEANER = """
import os, shutil, signal, sys, time

sys.stdin.read()
folder = sys.argv[1]
lock = os.path.join(folder, "data", "postmaster.pid")
try:
    pid = int(open(lock).readline())
    os.kill(pid, signal.SIGQUIT)
    os.kill(pid, signal.SIGCONT)
    while os.path.exists(lock):
        os.kill(pid, 0)
        time.sleep(0.01)
except (OSError, ValueError):
    pass
shutil.rmtree(folder, ignore_errors=True)
"""


class Server:
    """One server on a free port, stopped at first.

    Args:
        programs: the folder of PostgreSQL's programs.
        address: where it listens and clients find it; several with commas between.
        network: a process in whose network namespace it runs; None for this process's.
    """

    def __init__(
        self, programs: Path, *, address: str = "127.0.0.1", network: int | None = None
    ) -> None:
        self._programs, self._address, self._network = programs, address, network
        self._password = secrets.token_hex(8)
        self._folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
        self._user = _other_user() if os.geteuid() == 0 else None
        self._port = _free_port()
        self._process: _Process | None = None
        self._paused: list[int] = []
        self._cleaner = subprocess.Popen(
            [sys.executable, "-S", "-c", _CLEANER, str(self._folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        secret = self._folder / "password"
        secret.write_text(self._password, encoding="utf-8")
        if self._user is not None:
            for path in (self._folder, secret):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        command = [
            self._programs / "initdb",
            f"--pgdata={self._data}",
            f"--username={_ROLE}",
            f"--pwfile={secret}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ]
        done = self._popen(command, stdout=subprocess.PIPE)
        said, _ = done.communicate()
        assert done.returncode == 0, said.decode(errors="replace")
        (self._data / "pg_hba.conf").write_text(_HBA, encoding="utf-8")

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def log(self) -> str:
        """What the server has said so far."""
        return (self._folder / "log.txt").read_text(encoding="utf-8", errors="replace")

    def url(
        self,
        database: str = "postgres",
        *,
        password: str | None = None,
        address: str | None = None,
    ) -> str:
        """The storage's URL as a user gives it, by one of its addresses."""
        secret = self._password if password is None else password
        place = f"{address or self._address}:{self._port}"
        return f"postgresql+psycopg://{_ROLE}:{secret}@{place}/{database}"

    def local_url(self, database: str) -> str:
        """The URL by its socket, which needs no network."""
        user = f"{_ROLE}:{self._password}"
        where = f"host={self._folder}&port={self._port}"
        return f"postgresql+psycopg://{user}@/{database}?{where}"

    def create(self, database: str, template: str = "template1") -> str:
        """Make an empty database, or a copy of another one; returns its URL."""
        with self._connect() as connection:
            connection.execute(f'CREATE DATABASE "{database}" TEMPLATE "{template}"'.encode())
        return self.url(database)

    def drop(self, database: str) -> None:
        """Delete a database, whoever uses it."""
        with self._connect() as connection:
            connection.execute(f'DROP DATABASE "{database}" WITH (FORCE)'.encode())

    def start(self) -> None:
        """Start, and wait until it answers."""
        settings = (*_SETTINGS, f"listen_addresses={self._address}", f"port={self._port}")
        command = [self._programs / "postgres", "-D", self._data, "-k", self._folder]
        for setting in settings:
            command += ["-c", setting]
        with (self._folder / "log.txt").open("ab") as log:
            self._process = self._popen(command, stdout=log)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            with suppress(psycopg.OperationalError), self._connect():
                return
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop at once, as a crash does: connections are cut, what was committed stays."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(_PATIENCE_SECONDS)
        self._process = None

    def pause(self) -> None:
        """Answer nobody from now on, while all connections stay open."""
        assert self._process is not None
        with self._connect() as connection:
            self._process.send_signal(signal.SIGSTOP)  # first, so that no more are started
            found = connection.execute("SELECT pid FROM pg_stat_activity").fetchall()
            self._paused = [self._process.pid, *(pid for (pid,) in found)]
            for pid in self._paused:
                os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        for pid in self._paused:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._paused = []

    def close(self) -> None:
        """End it and remove all its files."""
        self.resume()
        if self._process is not None:
            self.stop()
        self._cleaner.communicate()

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(
            host=str(self._folder),  # its socket, which any network namespace reaches
            port=self._port,
            user=_ROLE,
            password=self._password,
            dbname="postgres",
            autocommit=True,
        )

    def _popen(self, command: Sequence[str | Path], *, stdout: IO[bytes] | int) -> _Process:
        user, network = self._user, self._network
        if network is not None:
            assert user is not None, "only root enters a network"
            enter = ["nsenter", f"--target={network}", "--net"]
            command = [*enter, f"--setuid={user.pw_uid}", f"--setgid={user.pw_gid}", *command]
            user = None
        return subprocess.Popen(
            command,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else (),
        )


def find_programs() -> Path | None:
    """The folder of an installed server's programs."""
    places: list[Path] = []
    if shutil.which("pg_config"):
        said = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=True)
        places.append(Path(said.stdout.strip()))
    if found := shutil.which("postgres"):
        places.append(Path(found).parent)
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    places += sorted(debian, key=lambda place: place.parent.name, reverse=True)
    both = ("initdb", "postgres")
    return next((p for p in places if all((p / name).exists() for name in both)), None)


def programs() -> Path:
    """As :func:`find_programs`; skips the test where there are none."""
    found = find_programs()
    if found is None:
        pytest.skip("no PostgreSQL server is installed (Debian: apt-get install postgresql)")
    return found


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A server that runs; a test that stops it starts it again."""
    server = Server(programs())
    try:
        server.start()
        yield server
    finally:
        server.close()


def _other_user() -> pwd.struct_passwd:
    """Whom a server runs as that is started by root, which it refuses."""
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise AssertionError("neither a user postgres nor nobody is on this machine")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
