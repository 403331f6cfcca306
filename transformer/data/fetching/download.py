"""Downloads to the cache, from their address or from ``DATA_MIRROR``: resumed and verified."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from time import sleep

import requests
from urllib3.exceptions import HTTPError

from transformer.corpus import TextFile
from transformer.data.fetching.cache import (
    cache_directory,
    check_sha256,
    check_space,
    exclusive,
    is_verified,
    mark_verified,
    sha256_of,
)
from transformer.errors import InputError
from transformer.files import rename
from transformer.progress import show_progress

# (connect, read) in seconds
_TIMEOUT = (10, 60)
_CHUNK = 2**20
# Attempts in a row that bring no byte: before a server has ever answered, and after.
_TRIES_UNANSWERED, _TRIES = 2, 6
_LONGEST_PAUSE = 30.0
_RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_WAY_OUT = "set DATA_MIRROR to a URL or a folder that holds host/path of it"


def cached_path(file: TextFile) -> Path:
    """Where the download of ``file`` is kept."""
    return cache_directory() / "downloads" / file.location.partition("://")[2]


def partial_path(path: Path) -> Path:
    """Where the part of ``path`` that has been downloaded so far is kept."""
    return path.with_name(f"{path.name}.part")


def fetch_download(file: TextFile) -> Path:
    """The cached download of ``file``, fetched if it is missing or has changed.

    Raises:
        InputError: if it cannot be fetched, or is not the declared file.
    """
    path, sha256 = cached_path(file), file.sha256
    assert sha256 is not None, "TextFile refuses a download without one"
    if is_verified(path, sha256):
        return path
    with exclusive(path, f"fetches {file.location}"):
        if not is_verified(path, sha256):
            if not path.exists() or sha256_of(path) != sha256:
                _fetch_anew(file, path, sha256)
            mark_verified(path, sha256)
    return path


def _fetch_anew(file: TextFile, path: Path, sha256: str) -> None:
    mirror = os.environ.get("DATA_MIRROR", "").rstrip("/")
    address = file.location.partition("://")[2]
    if not mirror or mirror.startswith(("http://", "https://")):
        origin = f"{mirror}/{address}" if mirror else file.location
        download(origin, path, sha256, file.bytes)
    else:
        _copy(Path(mirror).expanduser() / address, file, path, sha256)


def _copy(origin: Path, file: TextFile, path: Path, sha256: str) -> None:
    if not origin.is_file():
        raise InputError(f"{origin} does not exist: DATA_MIRROR lacks {file.location}")
    size = origin.stat().st_size
    check_space(path, size, str(origin))
    temporary, digest, done = partial_path(path), hashlib.sha256(), 0
    try:
        with (
            origin.open("rb") as source,
            temporary.open("wb") as out,
            show_progress(f"copy {origin.name}", size, in_bytes=True) as show,
        ):
            while chunk := source.read(_CHUNK):
                out.write(chunk)
                digest.update(chunk)
                show(done := done + len(chunk))
        check_sha256(sha256, digest.hexdigest(), origin)
        rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def download(origin: str, path: Path, sha256: str, size: int | None = None) -> None:
    """Download ``origin`` to ``path``, which exists only once it is complete and verified.

    An interrupted download is kept in :func:`partial_path` and resumed by the next call.

    Args:
        size: in bytes, if known; a server that offers another size is refused

    Raises:
        InputError: if it cannot be downloaded, there is no room, or it is another file, also on a
            second attempt.
    """
    transfer = _Transfer(origin, partial_path(path), size)
    found = ""
    for _ in range(2):
        transfer.complete()
        if transfer.digest.hexdigest() == sha256:
            rename(transfer.partial, path)
            return
        found = f"{transfer.digest.hexdigest()} ({transfer.received} bytes{transfer.kind})"
        transfer.discard()
    raise InputError(
        f"{origin} is not the declared file: expected sha256 {sha256}, found {found}; {_WAY_OUT}"
    )


class _Transfer:
    def __init__(self, origin: str, partial: Path, size: int | None) -> None:
        self.origin, self.partial, self.size = origin, partial, size
        self.kind = ""
        self.received = 0
        self.digest = hashlib.sha256()
        self._answered = False
        if partial.exists():
            with partial.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    self._count(chunk)

    def complete(self) -> None:
        """Receive everything that is missing, trying again where that may help."""
        failures = 0
        while self.received != self.size:
            before = self.received
            try:
                self._receive()
                return
            except (requests.RequestException, HTTPError) as error:
                failures = 1 if self.received > before else failures + 1
                tries = _TRIES if self._answered else _TRIES_UNANSWERED
                if failures >= tries or _is_final(error):
                    raise self._failure(error) from error
            sleep(min(2.0 ** (failures - 1), _LONGEST_PAUSE))

    def discard(self) -> None:
        """Delete what has been received."""
        self.partial.unlink(missing_ok=True)
        self.received, self.digest = 0, hashlib.sha256()

    def _receive(self) -> None:
        headers = {"Accept-Encoding": "identity"}
        if self.received > 0:
            headers["Range"] = f"bytes={self.received}-"
        with requests.get(self.origin, stream=True, timeout=_TIMEOUT, headers=headers) as response:
            if self.received > 0 and response.status_code == 416:
                return  # nothing is missing, or the file on the server is another one
            response.raise_for_status()
            self._answered = True
            kind = response.headers.get("Content-Type", "").partition(";")[0]
            self.kind = f", {kind}" if kind.startswith("text/html") else ""
            start = self.received if _is_continuation(response, self.received) else 0
            missing = int(response.headers.get("Content-Length", 0)) or None
            self._check_size(None if missing is None else start + missing)
            if start == 0 < self.received:
                self.discard()
            self._write_body(response, missing)

    def _check_size(self, offered: int | None) -> None:
        """Keep a partial download from being replaced by, say, a network's log-in page."""
        if offered is not None and self.size is not None and offered != self.size:
            raise InputError(
                f"{self.origin} is not the declared file: expected {self.size} bytes, "
                f"found {offered}{self.kind}; {_WAY_OUT}"
            )

    def _write_body(self, response: requests.Response, missing: int | None) -> None:
        if missing is not None:
            check_space(self.partial, missing, self.origin)
        total = self.size if missing is None else self.received + missing
        stage = f"fetch {self.partial.stem}"
        with (
            self.partial.open("ab") as out,
            show_progress(stage, total, self.received, in_bytes=True) as show,
        ):
            # read1 returns whatever has arrived; read() would lose it if the connection broke.
            while chunk := response.raw.read1(_CHUNK):
                out.write(chunk)
                out.flush()  # so that a kill loses nothing that has arrived
                self._count(chunk)
                show(self.received)

    def _count(self, chunk: bytes) -> None:
        self.received += len(chunk)
        self.digest.update(chunk)

    def _failure(self, error: requests.RequestException | HTTPError) -> InputError:
        if (status := _status(error)) is not None:
            reason = f"HTTP {status}"
        elif self.received > 0:
            reason = f"it broke off after {self.received} bytes, which are kept: try again"
        else:
            reason = type(error).__name__
        return InputError(f"{self.origin} cannot be downloaded ({reason}); {_WAY_OUT}")


def _is_continuation(response: requests.Response, start: int) -> bool:
    """Whether the server sends the file from ``start`` on, not from its beginning."""
    sent = response.headers.get("Content-Range", "")
    return response.status_code == 206 and sent.startswith(f"bytes {start}-")


def _status(error: requests.RequestException | HTTPError) -> int | None:
    response = error.response if isinstance(error, requests.RequestException) else None
    return None if response is None else response.status_code


def _is_final(error: requests.RequestException | HTTPError) -> bool:
    status = _status(error)
    return status is not None and status not in _RETRIED_STATUS
