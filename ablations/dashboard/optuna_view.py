"""optuna-dashboard on the storages of the directories, without a way to change them.

It gets a copy of SQLite's file, and a session of PostgreSQL that may only read; also, only GET
requests reach it. Its page has fixed addresses, which hold the number of a study: here, that of the
directory.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from wsgiref.util import setup_testing_defaults

from ablations.dashboard.reading import read_study
from transformer.errors import InputError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

_STUDY = re.compile(r"(/api/studies/|/csv/)(\d+)(.*)")
_REFRESH_SECONDS = 5.0
_COPY_ATTEMPTS = 20
_HEADER_BYTES = 32  # of SQLite's write-ahead log; they change when it begins anew
_READ_ONLY = {
    "connect_timeout": 5,
    "options": "-c default_transaction_read_only=on -c timezone=UTC -c statement_timeout=20s",
}
_Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Directory = tuple[int, Path]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class _Opened:
    application: _Application
    study: int
    version: object
    at: float
    close: Callable[[], None]


def is_installed() -> bool:
    """Whether optuna-dashboard is there."""
    return find_spec("optuna_dashboard") is not None


def has_storage(directory: Path) -> bool:
    """Whether optuna-dashboard can show the directory's study."""
    if not is_installed():
        return False
    try:
        url = _find_storage(directory)
    except InputError:
        return False
    return url.get_backend_name() != "sqlite" or Path(str(url.database)).is_file()


class OptunaView:
    """Answers GET requests for the pages of optuna-dashboard, one at a time."""

    PATHS = ("/dashboard{rest:path}", "/static/{rest:path}", "/api/{rest:path}", "/csv/{rest:path}")

    def __init__(self) -> None:
        self._opened: dict[Path, _Opened] = {}
        self._lock = threading.Lock()
        self._empty: _Application | None = None

    def answer(
        self, directories: Sequence[Directory], path: str, query: str, encoding: str
    ) -> Answer:
        """The answer for ``path``, in which a study's number is that of one of ``directories``."""
        if not is_installed():
            text = "optuna-dashboard is not installed: pip install optuna-dashboard"
            return Answer(404, {"content-type": "text/plain"}, text.encode())
        found = _STUDY.fullmatch(path)
        with self._lock:
            if path == "/api/studies":
                return self._list(directories)
            if found is None:  # the page itself, which is the same for all studies
                return _call(self._page(), path, query, encoding)
            directory = dict(directories).get(int(found[2]))
            if directory is None:
                return _refuse(404, "there is no such table or search")
            try:
                opened = self._open(directory)
            except InputError as error:
                return _refuse(503, str(error))
            return _call(opened.application, f"{found[1]}{opened.study}{found[3]}", query, encoding)

    def close(self) -> None:
        """Close all storages and remove the copies."""
        with self._lock:
            while self._opened:
                self._opened.popitem()[1].close()

    def _page(self) -> _Application:
        if self._empty is None:
            from optuna.storages import InMemoryStorage
            from optuna_dashboard import wsgi

            self._empty = wsgi(InMemoryStorage())
        return self._empty

    def _list(self, directories: Sequence[Directory]) -> Answer:
        """The directories' own studies; a database may hold others."""
        summaries: list[dict[str, Any]] = []
        for number, directory in directories:
            try:
                opened = self._open(directory)
            except InputError:
                continue
            listed = json.loads(_call(opened.application, "/api/studies", "", "").body)
            summaries += [
                {**summary, "study_id": number}
                for summary in listed["study_summaries"]
                if summary["study_id"] == opened.study
            ]
        body = json.dumps({"study_summaries": summaries}).encode()
        return Answer(200, {"content-type": "application/json"}, body)

    def _open(self, directory: Path) -> _Opened:
        """The directory's study; a copied file is copied again after some seconds if it changed.

        Raises:
            InputError: if there is no storage, or it cannot be read.
        """
        opened = self._opened.get(directory)
        if opened is not None and time.monotonic() < opened.at + _REFRESH_SECONDS:
            return opened
        url = _find_storage(directory)
        version = _version(Path(str(url.database))) if _is_file(url) else str(url)
        if opened is None or opened.version != version:
            if opened is not None:
                del self._opened[directory]
                opened.close()
            self._opened[directory] = opened = _open_study(url, read_study(directory), version)
        return opened


def _find_storage(directory: Path) -> URL:
    from ablations.runner.storage_url import registered_storage

    url = registered_storage(directory)
    if url is None:
        raise InputError(
            f"the storage of {directory} is not known here: put its URL into OPTUNA_STORAGE"
        )
    return url


def _is_file(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _open_study(url: URL, name: str, version: object) -> _Opened:
    import optuna
    from optuna.storages import RDBStorage
    from optuna_dashboard import wsgi

    from ablations.runner.storage import refuse_unusable

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folder = tempfile.TemporaryDirectory(prefix="dashboard-") if _is_file(url) else None
    try:
        with refuse_unusable(url):
            if folder is None:
                settings = {"connect_args": _READ_ONLY}
                address = url.render_as_string(hide_password=False)
                storage = RDBStorage(address, engine_kwargs=settings)
            else:
                copy = Path(folder.name) / "study.sqlite3"
                version = _copy(Path(str(url.database)), copy)
                storage = RDBStorage(f"sqlite:///{copy}")
            study = storage.get_study_id_from_name(name)
    except (KeyError, OSError, RuntimeError) as error:
        raise InputError(f"the study {name} cannot be read: {error}") from error

    def close() -> None:
        storage.remove_session()
        storage.engine.dispose()
        if folder is not None:
            folder.cleanup()

    return _Opened(wsgi(storage), study, version, time.monotonic(), close)


def _copy(database: Path, target: Path) -> object:
    """Copy a database that others may be writing, with what is in its log only; its version.

    Opening it in its place would leave files there, and could delay those who write.

    Raises:
        InputError: if it changes all the time.
    """
    for _ in range(_COPY_ATTEMPTS):
        before = _version(database)
        shutil.copyfile(database, target)
        log = _log(database)
        if log.is_file():
            shutil.copyfile(log, _log(target))
        # What is added at the end of the log meanwhile does no harm; a new beginning would.
        after = _version(database)
        if before[:2] == after[:2]:
            return before
        time.sleep(0.05)
    raise InputError(f"{database} is being written: try again")


def _version(database: Path) -> tuple[object, ...]:
    """What changes when the file, the beginning of its log, and the log are written."""
    try:
        stat = database.stat()
        main = stat.st_mtime_ns, stat.st_size
    except OSError as error:
        raise InputError(f"{database} cannot be read ({error.strerror})") from error
    try:
        log = _log(database).stat()
        with _log(database).open("rb") as file:
            return main, file.read(_HEADER_BYTES), (log.st_mtime_ns, log.st_size)
    except FileNotFoundError:
        return main, b"", None


def _log(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


def _refuse(status: int, why: str) -> Answer:
    body = json.dumps({"reason": why}).encode()
    return Answer(status, {"content-type": "application/json"}, body)


def _call(application: _Application, path: str, query: str, encoding: str) -> Answer:
    """The application's answer to a GET request."""
    environment: dict[str, Any] = {"PATH_INFO": path, "QUERY_STRING": query}
    environment["HTTP_ACCEPT_ENCODING"] = encoding
    setup_testing_defaults(environment)
    begun: list[tuple[str, list[tuple[str, str]]]] = []

    def start(status: str, headers: list[tuple[str, str]], _error: object = None) -> None:
        begun.append((status, headers))

    chunks = application(environment, start)
    try:
        body = b"".join(chunks)
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()
    status, headers = begun[-1]
    return Answer(int(status.split()[0]), {key.lower(): x for key, x in headers}, body)
