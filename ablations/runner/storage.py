"""Optuna's storage, opened so that many processes can use it and none waits for it for long."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import RDBStorage
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from ablations.runner.storage_url import display_url
from transformer.errors import InputError

STORAGE_ERRORS = (SQLAlchemyError, optuna.exceptions.StorageInternalError)

# To open a storage may take longer than a statement later may: nothing is running yet.
_OPEN_SECONDS = 30.0
_CONNECT_SECONDS = 5
_MOMENT_SECONDS = 0.1
_POSTGRESQL = {
    "connect_timeout": _CONNECT_SECONDS,
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    # Optuna compares times without a time zone, which each client would read in its own.
    "options": "-c timezone=UTC -c statement_timeout=20s -c lock_timeout=10s",
    "application_name": "ablations",
}
_OPEN_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """How often a worker reports that it is alive, and after what silence its runs are taken over.

    Raises:
        InputError: unless the interval is at least a second and shorter than the grace.
    """

    interval_seconds: int = 10
    grace_seconds: int = 60

    def __post_init__(self) -> None:
        if not 1 <= self.interval_seconds < self.grace_seconds:
            raise InputError(
                f"ABLATIONS_HEARTBEAT_SECONDS is {self.interval_seconds} and "
                f"ABLATIONS_GRACE_SECONDS {self.grace_seconds}: the first must be at least 1, and "
                "the second larger than the first"
            )

    @classmethod
    def from_environment(cls) -> Heartbeat:
        """Read ``ABLATIONS_HEARTBEAT_SECONDS`` and ``ABLATIONS_GRACE_SECONDS``.

        Raises:
            InputError: if they are not whole numbers, or do not fit together.
        """
        values: dict[str, int] = {}
        for name, variable in (
            ("interval_seconds", "ABLATIONS_HEARTBEAT_SECONDS"),
            ("grace_seconds", "ABLATIONS_GRACE_SECONDS"),
        ):
            text = os.environ.get(variable, "")
            if text and not text.isdecimal():
                raise InputError(f"{variable} is {text!r}, but must be a whole number of seconds")
            if text:
                values[name] = int(text)
        return cls(**values)


class Storage(RDBStorage):
    """Optuna's storage with a bound on how long it may block.

    Attributes:
        wait_seconds: after which a statement or a connection attempt is given up as an outage
    """

    engine: Engine

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.wait_seconds = _OPEN_SECONDS
        try:
            super().__init__(*arguments, **settings)
        except BaseException:
            if hasattr(self, "engine"):
                self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self.scoped_session.remove()
        self.engine.dispose()


@contextmanager
def open_storage(url: URL, heartbeat: Heartbeat) -> Generator[Storage]:
    """Open the database, create Optuna's tables if it is empty, and close it in the end.

    Raises:
        InputError: if it cannot be reached or used; the message never contains a password.
    """
    storage = _open(url, heartbeat)
    try:
        yield storage
    finally:
        storage.close()


def _open(url: URL, heartbeat: Heartbeat) -> Storage:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sqlite = url.get_backend_name() == "sqlite"
    settings: dict[str, Any] = {"timeout": _OPEN_SECONDS} if sqlite else dict(_POSTGRESQL)
    for attempt in range(1, _OPEN_ATTEMPTS + 1):
        try:
            with warnings.catch_warnings(
                action="ignore", category=optuna.exceptions.ExperimentalWarning
            ):
                storage = Storage(
                    url.render_as_string(hide_password=False),
                    engine_kwargs={"connect_args": settings, "pool_pre_ping": True},
                    heartbeat_interval=heartbeat.interval_seconds,
                    grace_period=heartbeat.grace_seconds,
                )
            _guard_sqlite(storage, url) if sqlite else _guard_postgresql(storage, url)
        except STORAGE_ERRORS as error:
            # Processes that create the tables at the same time collide, but once only.
            words = str(error)
            collided = isinstance(error, IntegrityError) or "already exists" in words
            if attempt < _OPEN_ATTEMPTS and (collided or "locked" in words):
                time.sleep(0.1 * attempt)
                continue
            raise InputError(_refusal(url, error)) from None
        except (RuntimeError, ImportError) as error:
            raise InputError(_refusal(url, error)) from None
        return storage
    raise AssertionError("the last attempt returns or raises")


def _guard_sqlite(storage: Storage, url: URL) -> None:
    """Make writers wait for each other, and refuse another file in the place of the opened one.

    Two writers could otherwise claim one trial. A process that kept a deleted file open would not
    see those that use the new one, so both would lead the same directory.
    """
    path = Path(str(url.database))
    opened = _file_identity(path)

    def check(*_: object) -> None:
        if _file_identity(path) != opened:
            raise _replaced(str(path))

    def connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # "begin" below says where a transaction begins
        connection.execute("PRAGMA journal_mode=WAL")

    def begin(connection: Connection) -> None:
        check()
        connection.exec_driver_sql(f"PRAGMA busy_timeout={round(1000 * storage.wait_seconds)}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    storage.engine.dispose()  # connections that were opened without these settings
    event.listen(storage.engine, "do_connect", check)  # which would create a missing file
    event.listen(storage.engine, "connect", connect)
    event.listen(storage.engine, "begin", begin)


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _guard_postgresql(storage: Storage, url: URL) -> None:
    """Bound the time that a silent server blocks, and refuse another database under this name.

    A database that is dropped ends all its connections, so new ones are checked.
    """
    from psycopg import Connection as Psycopg
    from psycopg import OperationalError

    question = "SELECT oid FROM pg_database WHERE datname = current_database()"
    with storage.engine.connect() as connection:
        opened = connection.exec_driver_sql(question).scalar_one()
    storage.engine.dispose()
    silent_at = float("-inf")

    def give_up() -> OperationalError:
        return OperationalError(f"no answer within {storage.wait_seconds:g} s")

    class BoundedConnection(Psycopg[Any]):
        """Gives up on a server that is frozen, which keeps the connection open and says nothing."""

        def wait(self, gen: Any, *arguments: Any, **settings: Any) -> Any:
            return super().wait(self._bounded(gen), *arguments, **settings)

        def _bounded(self, gen: Any) -> Generator[Any, Any, Any]:
            nonlocal silent_at
            deadline = time.monotonic() + storage.wait_seconds
            try:
                wanted = next(gen)
                while True:
                    ready = yield wanted  # 0 several times a second while there is no answer
                    if not ready and time.monotonic() > deadline:
                        self.pgconn.finish()
                        silent_at = time.monotonic()
                        raise give_up()
                    wanted = gen.send(ready)
            except StopIteration as end:
                return end.value

    def connect(_dialect: Any, _record: Any, arguments: Any, settings: dict[str, Any]) -> Any:
        if time.monotonic() - silent_at < _MOMENT_SECONDS:
            raise give_up()  # the pool replaces a dead connection at once, and would wait again
        timeout = min(_CONNECT_SECONDS, storage.wait_seconds)
        return BoundedConnection.connect(*arguments, **settings | {"connect_timeout": int(timeout)})

    def check(connection: Any, _record: Any) -> None:
        (found,) = connection.execute(question).fetchone()
        connection.rollback()
        if found != opened:
            raise _replaced(display_url(url))

    event.listen(storage.engine, "do_connect", connect)
    event.listen(storage.engine, "connect", check)


def _replaced(name: str) -> InputError:
    return InputError(
        f"the database {name} was deleted or replaced while it was in use, so this process stops "
        "using it: results and checkpoints are kept, and the same command continues with the new "
        "one"
    )


@contextmanager
def refuse_unusable(url: URL) -> Generator[None]:
    """Turn database errors while a study is opened into bad input.

    Raises:
        InputError: if it cannot be used; the message never contains a password.
    """
    try:
        yield
    except STORAGE_ERRORS as error:
        raise InputError(_refusal(url, error)) from None


def delete_study(storage: Storage, name: str) -> None:
    """Delete a study that nobody uses, if it exists."""
    with suppress(KeyError):
        storage.delete_study(storage.get_study_id_from_name(name))


def reason(error: BaseException) -> str:
    """The database's own message in one line, without what SQLAlchemy and Optuna add."""
    cause = error.__cause__ or error
    origin = getattr(cause, "orig", None) or cause
    lines = [line.strip() for line in str(origin).splitlines() if line.strip()]
    return lines[0] if lines else type(origin).__name__


def _refusal(url: URL, error: Exception) -> str:
    words = reason(error)
    if url.password:
        words = words.replace(str(url.password), "***")
    if url.get_backend_name() == "sqlite":
        return (
            f"the study at {url.database} cannot be used ({words}); a study may be deleted, as "
            "results are kept in files of their own"
        )
    if isinstance(error, RuntimeError):
        return (
            f"the storage {display_url(url)} was made by another version of Optuna ({words}): use "
            "another database, or upgrade it with: optuna storage upgrade"
        )
    return (
        f"the storage {display_url(url)} cannot be used ({words}): check the server, the name of "
        "the database, the user and the password (also in PGPASSWORD or ~/.pgpass)"
    )
