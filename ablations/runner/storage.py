"""The database that the workers of a fleet share: SQLite for one machine, PostgreSQL for many.

It is Optuna's storage, opened so that many processes may use it at once.
"""

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
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError

from transformer.errors import InputError

STORAGE_ERRORS = (SQLAlchemyError, optuna.exceptions.StorageInternalError)
STUDY_FILE = "study.sqlite3"
URL_VARIABLE = "OPTUNA_STORAGE"

_SQLITE_SECONDS = 30.0
# A server that has gone without a word is given up after these, for a training waits for nothing.
_POSTGRESQL = {
    "connect_timeout": 5,
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    # Optuna compares times without a zone, which each client would else read in its own.
    "options": "-c timezone=UTC -c statement_timeout=20s -c lock_timeout=10s",
    "application_name": "ablations",
}
_CREATIONS = 8


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a worker says that it lives, and after what silence its trials are taken over."""

    heartbeat_seconds: int = 10
    grace_seconds: int = 60

    def __post_init__(self) -> None:
        if not 1 <= self.heartbeat_seconds < self.grace_seconds:
            raise InputError(
                f"ABLATIONS_HEARTBEAT_SECONDS is {self.heartbeat_seconds} and "
                f"ABLATIONS_GRACE_SECONDS {self.grace_seconds}: the first must be at least 1, and "
                "the second more than the first"
            )

    @classmethod
    def of_environment(cls) -> Patience:
        """The one that ``ABLATIONS_HEARTBEAT_SECONDS`` and ``ABLATIONS_GRACE_SECONDS`` name.

        Raises:
            InputError: if they are no whole numbers, or the wrong way round.
        """
        values: dict[str, int] = {}
        for name in ("heartbeat_seconds", "grace_seconds"):
            variable = f"ABLATIONS_{name.upper()}"
            text = os.environ.get(variable, "")
            if text and not text.isdecimal():
                raise InputError(f"{variable} is {text!r}, but must be a whole number of seconds")
            if text:
                values[name] = int(text)
        return cls(**values)


def storage_url(given: str | None, directory: Path) -> URL:
    """Where the fleet of ``directory`` keeps its study: the URL that was given, or that of
    ``OPTUNA_STORAGE``, or a file of SQLite's in the directory.

    Raises:
        InputError: for a URL of another kind of database, or none at all.
    """
    text = given or os.environ.get(URL_VARIABLE)
    if not text:
        return make_url(f"sqlite:///{directory / STUDY_FILE}")
    try:
        url = make_url(text)
        backend = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError):
        raise InputError(
            "--storage is no URL of a database: it looks like "
            "postgresql://user@host:5432/database or sqlite:///path/to/file"
        ) from None
    if backend == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if backend == "sqlite" and url.database and url.database != ":memory:":
        return url
    raise InputError(
        f"--storage names {text.partition(':')[0]!r}, but it takes postgresql://… (many machines) "
        "or sqlite:///FILE (one machine)"
    )


def show(url: URL) -> str:
    """The URL as a person may see it: without its password, and parameters, which may hold one."""
    url = url.set(drivername=url.get_backend_name(), query={})
    return url.render_as_string(hide_password=True)


@contextmanager
def open_storage(url: URL, patience: Patience) -> Generator[Storage]:
    """Open the database, and make Optuna's tables in an empty one; its connections are closed
    in the end.

    Raises:
        InputError: if it cannot be reached or used; a password is never part of the message.
    """
    storage = _make(url, patience)
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _make(url: URL, patience: Patience) -> Storage:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sqlite = url.get_backend_name() == "sqlite"
    text = url.render_as_string(hide_password=False)
    settings: dict[str, Any] = {"timeout": _SQLITE_SECONDS} if sqlite else dict(_POSTGRESQL)
    for turn in range(_CREATIONS):
        try:
            storage = _open(text, settings, patience)
            if not sqlite:
                _refuse_another_database(storage.engine, show(url))
        except STORAGE_ERRORS as error:
            # Two processes that make the tables at once get in each other's way, but once only.
            if turn + 1 < _CREATIONS and _is_collision(error):
                time.sleep(0.1 * (turn + 1))
                continue
            raise InputError(_refusal(url, error)) from None
        except (RuntimeError, ImportError) as error:
            raise InputError(_refusal(url, error)) from None
        if sqlite:
            _serialise(storage.engine)
            _refuse_another_file(storage.engine, Path(str(url.database)))
        return storage
    raise AssertionError("the last turn returns or raises")


def delete_study(storage: Storage, name: str) -> None:
    """Delete a study on which nobody works, if it is there."""
    with suppress(KeyError):
        storage.delete_study(storage.get_study_id_from_name(name))


class Storage(RDBStorage):
    """Optuna's storage, which here leaves no connection open where it cannot be made."""

    engine: Engine

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        try:
            super().__init__(*arguments, **settings)
        except BaseException:
            if hasattr(self, "engine"):
                self.scoped_session.remove()
                self.engine.dispose()
            raise


@contextmanager
def refusing(url: URL) -> Generator[None]:
    """Turn what the database says while a study is opened into bad input.

    Raises:
        InputError: if it cannot be used; a password is never part of the message.
    """
    try:
        yield
    except STORAGE_ERRORS as error:
        raise InputError(_refusal(url, error)) from None


def _open(text: str, settings: dict[str, Any], patience: Patience) -> Storage:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return Storage(
            text,
            engine_kwargs={"connect_args": settings, "pool_pre_ping": True},
            heartbeat_interval=patience.heartbeat_seconds,
            grace_period=patience.grace_seconds,
        )


def _is_collision(error: Exception) -> bool:
    words = str(error)
    return isinstance(error, IntegrityError) or "already exists" in words or "locked" in words


def _serialise(engine: Engine) -> None:
    """Let SQLite's writers wait for each other: two could else claim one trial."""

    def connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we say where a transaction begins
        connection.execute("PRAGMA journal_mode=WAL")

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    engine.dispose()  # what is open was opened without
    event.listen(engine, "connect", connect)
    event.listen(engine, "begin", begin)


def _refuse_another_file(engine: Engine, path: Path) -> None:
    """Use the database file that is at ``path`` now, and no other that takes its place.

    A process that goes on with a deleted file does not see those that use the new one, so both
    would lead the same directory. Numbers of trials mean something else in the new file.
    """
    opened = _file_identity(path)

    def check(*_: object) -> None:
        if _file_identity(path) != opened:
            raise _replaced(str(path))

    event.listen(engine, "do_connect", check)  # which would create a file that is missing
    event.listen(engine, "begin", check)


def _refuse_another_database(engine: Engine, name: str) -> None:
    """The same of a server's database, whose connections all end when it is deleted."""
    question = "SELECT oid FROM pg_database WHERE datname = current_database()"
    with engine.connect() as connection:
        opened = connection.exec_driver_sql(question).scalar_one()

    def check(connection: Any, _record: Any) -> None:
        (found,) = connection.execute(question).fetchone()
        connection.rollback()
        if found != opened:
            raise _replaced(name)

    event.listen(engine, "connect", check)


def _replaced(name: str) -> InputError:
    return InputError(
        f"the database {name} was deleted or replaced while it was in use, so this process no "
        "longer uses it: results and checkpoints are kept, and the same command goes on with the "
        "new one"
    )


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def reason(error: BaseException) -> str:
    """What a database says is the matter, in one line and without what SQLAlchemy adds."""
    cause = error.__cause__ or error  # Optuna wraps some of SQLAlchemy's
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
            f"the storage {show(url)} was made by another version of Optuna ({words}): use "
            "another database, or upgrade it with: optuna storage upgrade"
        )
    return (
        f"the storage {show(url)} cannot be used ({words}): check the server, the name of the "
        "database, the user and the password (also in PGPASSWORD or ~/.pgpass)"
    )
