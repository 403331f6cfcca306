"""The storages that a storm takes away for a while."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Protocol

from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from ablations.runner.identity import pid_of
from tests.ablations.postgresql import Server


class Database(Protocol):
    """``url`` is what Optuna opens."""

    url: str

    def stop(self) -> bool:
        """Be of no use from now on; whether that could be done."""
        ...

    def start(self) -> None:
        """Be of use again, if it was not."""
        ...

    def delete(self) -> bool:
        """Forget all; whether that could be done."""
        ...


def leader(database: Database) -> int | None:
    """The process that holds the lease; None while nobody does or that cannot be told."""
    engine = create_engine(database.url)
    try:
        with engine.connect() as connection:
            found = connection.execute(text("SELECT holder FROM ablations_leases")).scalar()
    except SQLAlchemyError:
        return None
    finally:
        engine.dispose()
    return pid_of(found) if found else None


class SQLite:
    """The file of a directory, which cannot be stopped, but be locked for so long."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path
        self._lock: sqlite3.Connection | None = None

    def stop(self) -> bool:
        """Lock it; not while another stop lasts or a worker writes."""
        if self._lock is not None or not self._path.exists():
            return False
        connection = sqlite3.connect(self._path, timeout=1.0, isolation_level=None)
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            connection.close()
            return False
        self._lock = connection
        return True

    def start(self) -> None:
        """Let go of it."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def delete(self) -> bool:
        """Remove the file; not while a stop lasts."""
        if self._lock is not None or not self._path.exists():
            return False
        for path in self._path.parent.glob(f"{self._path.name}*"):
            path.unlink(missing_ok=True)
        return True


class PostgreSQL:
    """One database of a server, which is stopped as by a crash."""

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name, self._stopped = server, name, False
        self.url = server.create(name)

    def stop(self) -> bool:
        """Crash; not while another stop lasts."""
        if self._stopped:
            return False
        self._server.stop()
        self._stopped = True
        return True

    def start(self) -> None:
        """Start again with all that was committed."""
        if self._stopped:
            self._server.start()
            self._stopped = False

    def delete(self) -> bool:
        """Replace it by an empty one; not while a stop lasts."""
        if self._stopped:
            return False
        self._server.drop(self._name)
        self._server.create(self._name)
        return True
