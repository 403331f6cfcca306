"""Downloads in the cache: from where they are declared to be, or from ``DATA_MIRROR``."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from transformer.corpus import TextFile
from transformer.data.fetching.cache import cache_directory, hold, is_as_noted, note
from transformer.data.fetching.checksum import sha256_of, verify
from transformer.data.fetching.download import download, partial
from transformer.data.fetching.space import check_space
from transformer.errors import InputError
from transformer.progress import show_bytes

_CHUNK = 2**20


def cached_path(file: TextFile) -> Path:
    """Where the download of ``file`` is kept."""
    return cache_directory() / "downloads" / file.location.partition("://")[2]


def downloaded(file: TextFile) -> Path:
    """The download of ``file``, fetched unless it is in the cache and has not changed there.

    Raises:
        InputError: if it cannot be had, or is not what was declared.
    """
    path, sha256 = cached_path(file), file.sha256
    assert sha256 is not None, "TextFile refuses a download without one"
    if is_as_noted(path, sha256):
        return path
    with hold(path, f"fetches {file.location}"):
        if not is_as_noted(path, sha256):
            if not path.exists() or sha256_of(path) != sha256:
                _download(file, path, sha256)
            note(path, sha256)
    return path


def _download(file: TextFile, path: Path, sha256: str) -> None:
    """From its address, or from its place in ``DATA_MIRROR``."""
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
    temporary, digest, done = partial(path), hashlib.sha256(), 0
    try:
        with (
            origin.open("rb") as source,
            temporary.open("wb") as out,
            show_bytes(f"copy {origin.name}", size) as show,
        ):
            while chunk := source.read(_CHUNK):
                out.write(chunk)
                digest.update(chunk)
                show(done := done + len(chunk))
        verify(sha256, digest.hexdigest(), origin)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
