"""Downloads to the cache, resumed and verified."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import nullcontext
from pathlib import Path

import requests
from urllib3.exceptions import HTTPError

from transformer.corpus import TextFile, check_address
from transformer.data.fetch.cache import (
    cache_directory,
    check_sha256,
    check_space,
    exclusive,
    sha256_of,
)
from transformer.errors import InputError
from transformer.files import expand_user, keep, making, part_of
from transformer.progress import show_progress

# (connect, read) in seconds
_TIMEOUT = (10, 60)
_CHUNK = 2**20
# Smaller downloads show no progress: a corpus may have many.
_LARGE = 10**7
# The most bytes of a file whose size neither the corpus nor the server gives.
_MOST_BYTES = 10**10
# Attempts in a row that bring no byte, with pauses of 1, 2, 4 and 8 s between them.
_ATTEMPTS, _BACKOFF = 5, 0.5
_RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_FORBIDDEN = frozenset({401, 403})
_WAY_OUT = "set DATA_MIRROR to a URL or a folder that holds host/path of it"


def cached_path(file: TextFile) -> Path:
    """The place of the download of ``file``, without what is secret in its address."""
    place = cache_directory() / "downloads" / _host_and_path(file)
    _, query, ending = file.location.partition("?…")
    if not query:
        return place
    # Its query may be all that tells it from others.
    return place.parent / str(file.sha256)[:16] / f"{place.name}{ending}"


def _host_and_path(file: TextFile) -> str:
    return file.location.partition("://")[2].partition("?")[0]


def fetch_download(file: TextFile) -> Path:
    """The cached download of ``file``, fetched if it is missing or has changed."""
    path, sha256 = cached_path(file), file.sha256
    assert sha256 is not None, "TextFile refuses a download without one"
    with exclusive(path, f"fetches {file.location}"):
        if path.exists() and sha256_of(path) == sha256:
            return path
        mirror = os.environ.get("DATA_MIRROR", "").rstrip("/")
        if not mirror or mirror.startswith(("http://", "https://")):
            check_address(mirror, "the address in DATA_MIRROR")
            address = f"{mirror}/{_host_and_path(file)}" if mirror else file.address
            download(address, path, sha256, file.bytes)
            return path
        origin = expand_user(mirror) / _host_and_path(file)
        if not origin.is_file():
            raise InputError(f"{origin} does not exist: DATA_MIRROR lacks {file.location}")
        check_space(path.parent, origin.stat().st_size, path.name)
        with making(path) as part:
            shutil.copyfile(origin, part)
            check_sha256(part, sha256, origin)
    return path


def download(origin: str, path: Path, sha256: str, size: int | None = None) -> None:
    """Download ``origin`` to ``path``, which exists only once it is complete and verified.

    The received part of an interrupted download is kept, and the next call continues after it.

    Args:
        size: in bytes, if it is declared; a server that offers another is refused
    """
    part, found = part_of(path), ""
    for _ in range(2):  # again from the start, if an earlier call received another file
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
    failures, furthest = 0, _size(part)
    while True:
        try:
            _receive(origin, part, size)
            return
        except (requests.RequestException, HTTPError, ValueError) as error:
            failures = 0 if _size(part) > furthest else failures + 1
            furthest = max(furthest, _size(part))
            response = error.response if isinstance(error, requests.RequestException) else None
            reason = type(error).__name__ if response is None else f"HTTP {response.status_code}"
            if response is not None and response.status_code in _FORBIDDEN:
                reason += "; passwords and queries are not stored: prepare it from its declaration"
            is_final = response is not None and response.status_code not in _RETRIED_STATUS
            if is_final or failures == _ATTEMPTS:
                # From None, as the message of the error may hold a password of a proxy.
                raise InputError(f"{origin} cannot be downloaded ({reason}); {_WAY_OUT}") from None
        time.sleep(_BACKOFF * 2**failures if failures else 0)


def _receive(origin: str, part: Path, size: int | None) -> None:
    """Append the rest of ``origin`` to ``part``, or write all of it if ranges are ignored."""
    done = _size(part)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    with requests.get(origin, stream=True, timeout=_TIMEOUT, headers=headers) as response:
        if done and response.status_code == 416:
            return  # nothing is missing, or the file on the server is another one
        response.raise_for_status()
        sent = response.headers.get("Content-Range", "")
        if response.status_code != 206 or not sent.startswith(f"bytes {done}-"):
            done = 0
        announced = response.headers.get("Content-Length", "")
        length = int(announced) if announced.isdecimal() else 0
        # What was received must not be replaced by, say, a network's log-in page.
        if length and size is not None and done + length != size:
            kind = response.headers.get("Content-Type", "of unknown type")
            raise InputError(
                f"{origin} is not the declared file: expected {size} bytes, found {done + length} "
                f"({kind}); {_WAY_OUT}"
            )
        _write(response, part, done, size or (done + length if length else None))


def _write(response: requests.Response, part: Path, done: int, size: int | None) -> None:
    """Write the body of a response to ``part`` after its first ``done`` bytes, up to its size."""
    name, limit = part.stem.removeprefix("."), size or _MOST_BYTES
    missing = size - done if size else 0
    check_space(part.parent, missing, name)
    progress = show_progress(f"fetch {name}", limit, done)
    with (
        part.open("ab" if done else "wb") as out,
        progress if missing > _LARGE else nullcontext(lambda _: None) as show,
    ):
        try:
            # read1 returns whatever has arrived; read() would lose it if the connection broke.
            while chunk := response.raw.read1(_CHUNK):
                done += len(chunk)
                if done > limit:
                    raise InputError(
                        f"{response.url} is not the declared file: it has more than {limit:,} "
                        f"bytes (of a file as large, declare them); {_WAY_OUT}"
                    )
                out.write(chunk)
                out.flush()  # so that a kill loses nothing that has arrived
                show(done)
        except (InputError, OSError):
            if done > limit or not size:  # it may have no end, and would fill the disk again
                part.unlink()
            raise
