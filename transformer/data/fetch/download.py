"""Downloads to the cache, resumed and verified."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import requests
from urllib3.exceptions import HTTPError

from transformer.corpus import TextFile
from transformer.data.fetch.cache import (
    cache_directory,
    check_sha256,
    check_space,
    exclusive,
    keep,
    making,
    part_of,
    sha256_of,
)
from transformer.errors import InputError
from transformer.progress import show_progress

# (connect, read) in seconds
_TIMEOUT = (10, 60)
_CHUNK = 2**20
# Attempts in a row that bring no byte: of a server that has answered before, and of another.
_ATTEMPTS, _ATTEMPTS_AT_FIRST = 6, 2
# Pauses of 1, 2, 4, 8 and 16 s between them.
_BACKOFF = 0.5
_RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_WAY_OUT = "set DATA_MIRROR to a URL or a folder that holds host/path of it"


def cached_path(file: TextFile) -> Path:
    """The place of the download of ``file``."""
    return cache_directory() / "downloads" / _address(file)


def _address(file: TextFile) -> str:
    return file.location.partition("://")[2]


def fetch_download(file: TextFile) -> Path:
    """The cached download of ``file``, fetched if it is missing or has changed."""
    path, sha256 = cached_path(file), file.sha256
    assert sha256 is not None, "TextFile refuses a download without one"
    with exclusive(path, f"fetches {file.location}"):
        if not path.exists() or sha256_of(path) != sha256:
            mirror = os.environ.get("DATA_MIRROR", "").rstrip("/")
            if not mirror or mirror.startswith(("http://", "https://")):
                origin = f"{mirror}/{_address(file)}" if mirror else file.location
                download(origin, path, sha256, file.bytes)
            else:
                _copy(file, Path(mirror).expanduser() / _address(file), path, sha256)
    return path


def _copy(file: TextFile, origin: Path, path: Path, sha256: str) -> None:
    if not origin.is_file():
        raise InputError(f"{origin} does not exist: DATA_MIRROR lacks {file.location}")
    with making(path) as part, origin.open("rb") as source:
        _append(source.read, part, origin.stat().st_size)
        check_sha256(part, sha256, origin)


def download(origin: str, path: Path, sha256: str, size: int | None = None) -> None:
    """Download ``origin`` to ``path``, which exists only once it is complete and verified.

    What an interrupted download has received is kept, and the next call continues after it.

    Args:
        size: in bytes, if known; a server that offers another size is refused
    """
    part, found = part_of(path), ""
    for _ in range(2):  # a second time, if what an earlier call received was of another file
        _complete(origin, part, size)
        if (received := sha256_of(part)) == sha256:
            keep(part, path)
            return
        found = f"{received} ({_size(part)} bytes)"
        part.unlink()
    raise InputError(
        f"{origin} is not the declared file: expected sha256 {sha256}, found {found}; {_WAY_OUT}"
    )


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _complete(origin: str, part: Path, size: int | None) -> None:
    """Receive everything that is missing, however often the connection breaks in between."""
    failures = 0
    while (before := _size(part)) != size:
        try:
            _receive(origin, part, size)
            return
        except (requests.RequestException, HTTPError) as error:
            received = _size(part)
            failures = 0 if received > before else failures + 1
            response = error.response if isinstance(error, requests.RequestException) else None
            if response is not None:
                reason = f"HTTP {response.status_code}"
            elif received:
                reason = f"it broke off after {received} bytes, which are kept: try again"
            else:
                reason = type(error).__name__
            has_answered = received > 0 or response is not None
            is_final = response is not None and response.status_code not in _RETRIED_STATUS
            if is_final or failures == (_ATTEMPTS if has_answered else _ATTEMPTS_AT_FIRST):
                raise InputError(f"{origin} cannot be downloaded ({reason}); {_WAY_OUT}") from error
        time.sleep(_BACKOFF * 2**failures if failures else 0)


def _receive(origin: str, part: Path, size: int | None) -> None:
    """Append the rest of ``origin`` to ``part``, or write all if the server offers no less."""
    begun = _size(part)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={begun}-"} if begun else {})
    with requests.get(origin, stream=True, timeout=_TIMEOUT, headers=headers) as response:
        if begun and response.status_code == 416:
            return  # nothing is missing, or the file on the server is another one
        response.raise_for_status()
        sent = response.headers.get("Content-Range", "")
        if response.status_code != 206 or not sent.startswith(f"bytes {begun}-"):
            begun = 0
        length = int(response.headers.get("Content-Length", 0))
        total = begun + length if length else size
        # Keep what was received from being replaced by, say, a network's log-in page.
        if None not in (total, size) and total != size:
            kind = response.headers.get("Content-Type", "of unknown type")
            raise InputError(
                f"{origin} is not the declared file: expected {size} bytes, found {total} "
                f"({kind}); {_WAY_OUT}"
            )
        if not begun:
            part.unlink(missing_ok=True)
        # read1 returns whatever has arrived; read() would lose it if the connection broke.
        _append(response.raw.read1, part, total)


def _append(read: Callable[[int], bytes], part: Path, total: int | None) -> None:
    """Write all that ``read`` returns to the end of ``part``, and show the progress."""
    done = _size(part)
    if total is not None:
        check_space(part, total - done, part.stem)
    with (
        part.open("ab") as out,
        show_progress(f"fetch {part.stem}", total, done, in_bytes=True) as show,
    ):
        while chunk := read(_CHUNK):
            out.write(chunk)
            out.flush()  # so that a kill loses nothing that has arrived
            show(done := done + len(chunk))
