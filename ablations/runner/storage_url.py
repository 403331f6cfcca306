"""Which database a directory's workers share: SQLite on one machine, PostgreSQL for many."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from ablations.files import STORAGE_FILE, STUDY_FILE
from experiments.run.progress import PROGRESS_FILE
from transformer.errors import InputError
from transformer.files import read_json, write_json

URL_VARIABLE = "OPTUNA_STORAGE"
_SQLITE = "SQLite's "


def storage_url(given: str | None, directory: Path) -> URL:
    """The URL in ``given``, else in ``OPTUNA_STORAGE``, else that of a file in ``directory``.

    Raises:
        InputError: if it is not the URL of a supported database.
    """
    text = given or os.environ.get(URL_VARIABLE)
    if not text:
        return make_url(f"sqlite:///{directory / STUDY_FILE}")
    try:
        url = make_url(text)
        backend = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError):
        raise InputError(
            "--storage is not the URL of a database: use postgresql://user@host:5432/database "
            "or sqlite:///path/to/file"
        ) from None
    if backend == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if backend == "sqlite" and url.database and url.database != ":memory:":
        return url
    raise InputError(
        f"--storage names {text.partition(':')[0]!r}, but it takes postgresql://… (many machines) "
        "or sqlite:///FILE (one machine)"
    )


def display_url(url: URL) -> str:
    """The URL without its password and without parameters, which may hold one."""
    url = url.set(drivername=url.get_backend_name(), query={})
    return url.render_as_string(hide_password=True)


def register_storage(root: Path, url: URL, grace_seconds: float) -> None:
    """Record which database the workers of ``root`` use.

    Workers with different databases would each take the other's live runs for abandoned ones.

    Raises:
        InputError: if another one is in use there.
    """
    path, ours = root / STORAGE_FILE, _identify(root, url)
    before = read_json(path).get("storage") if path.exists() else None
    if before == ours:
        return
    reports = (x.stat().st_mtime for x in root.glob(f"**/*.attempt-*/{PROGRESS_FILE}"))
    if before is not None and time.time() - max(reports, default=0) < grace_seconds:
        raise InputError(
            f"{root} is being worked on through the storage {before}, not {ours}: give all workers "
            "the same --storage, or wait until those have ended"
        )
    write_json(path, {"storage": ours})


def registered_storage(root: Path) -> URL | None:
    """The database that the workers of ``root`` recorded; None if its URL is not known here, as
    that of a server is only in ``OPTUNA_STORAGE``.

    Raises:
        InputError: if the record cannot be read, or ``OPTUNA_STORAGE`` is not a database's URL.
    """
    path = root / STORAGE_FILE
    recorded = str(read_json(path).get("storage")) if path.exists() else ""
    if recorded.startswith(_SQLITE):
        return URL.create("sqlite", database=str(root / recorded.removeprefix(_SQLITE)))
    url = storage_url(None, root)
    return url if _identify(root, url) == recorded else None


def _identify(root: Path, url: URL) -> str:
    """Name the storage in the same way on every machine: a server has many host names."""
    if url.get_backend_name() == "sqlite":
        path = Path(str(url.database)).resolve()
        inside = path.is_relative_to(root.resolve())
        return f"{_SQLITE}{path.relative_to(root.resolve()) if inside else path}"
    return f"PostgreSQL's database {url.database!r}"
