"""From a declared location to a verified file on disk."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from transformer.config import TextFile
from transformer.data import cldr
from transformer.data.archives import member
from transformer.data.download import download
from transformer.data.space import check_space
from transformer.errors import InputError

# Text that the project writes itself: what determines its bytes, and how it is written.
_GENERATORS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "cldr_en_de": (cldr.VERSION, cldr.write)
}


def cache_directory() -> Path:
    """Where downloads and prepared corpora are kept: ``DATA_CACHE``, or the user's cache."""
    if configured := os.environ.get("DATA_CACHE"):
        return Path(configured).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "attention-is-all-you-need"


def fetch(file: TextFile) -> Path:
    """A local file with the declared content: as it is, written, from the cache or downloaded.

    Raises:
        InputError: if it cannot be had, or is not what was declared.
    """
    if file.location.startswith("builtin:"):
        return _generate(file.location.removeprefix("builtin:"))
    path = _whole(file)
    if file.member is None:
        return path
    checksum = file.sha256 or sha256_of(path)
    return member(path, file.member, cache_directory() / "members" / checksum[:16])


def _whole(file: TextFile) -> Path:
    """The declared file, which may be an archive."""
    if file.location.startswith(("http://", "https://")):
        return _cached(file)
    path = Path(file.location).expanduser()
    if not path.is_file():
        raise InputError(f"{path} does not exist")
    if file.sha256 is not None:
        _verify(path, file.sha256, str(path))
    return path


def sha256_of(path: Path) -> str:
    """The checksum of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _generate(name: str) -> Path:
    generator, _, member = name.partition("/")
    version, write = _GENERATORS[generator]
    directory = cache_directory() / "builtin" / f"{generator}-{version}"
    directory.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{directory}.lock"):
        if not directory.exists():
            temporary = directory.with_name(f"{directory.name}.part")
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            write(temporary)
            temporary.replace(directory)
    return directory / member


def _cached(file: TextFile) -> Path:
    """The download of ``file``, fetched unless it is in the cache and has not changed there."""
    address = file.location.partition("://")[2]
    path = cache_directory() / "downloads" / address
    path.parent.mkdir(parents=True, exist_ok=True)
    assert file.sha256 is not None, "TextFile refuses a download without one"
    with FileLock(f"{path}.lock"):
        if not _is_verified(path, file.sha256):
            _download(file.location, path, file.sha256)
            _note_verified(path, file.sha256)
    return path


def _download(url: str, path: Path, sha256: str) -> None:
    """From ``url``, or from its place in ``DATA_MIRROR``."""
    mirror = os.environ.get("DATA_MIRROR", "").rstrip("/")
    address = url.partition("://")[2]
    if not mirror or mirror.startswith(("http://", "https://")):
        download(f"{mirror}/{address}" if mirror else url, path, sha256)
        return
    origin = Path(mirror).expanduser() / address
    if not origin.is_file():
        raise InputError(f"{origin} does not exist: DATA_MIRROR lacks {url}")
    _verify(origin, sha256, str(origin))
    check_space(path, origin.stat().st_size, str(origin))
    partial = path.with_name(f"{path.name}.part")
    try:
        shutil.copyfile(origin, partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _is_verified(path: Path, sha256: str) -> bool:
    """Whether the cached file is the declared one; it is read only if it has changed since."""
    if not path.exists():
        return False
    note = _note(path)
    if note.exists() and note.read_text(encoding="utf-8") == _fingerprint(path, sha256):
        return True
    if sha256_of(path) != sha256:
        return False
    _note_verified(path, sha256)
    return True


def _note_verified(path: Path, sha256: str) -> None:
    _note(path).write_text(_fingerprint(path, sha256), encoding="utf-8")


def _note(path: Path) -> Path:
    return path.with_name(f"{path.name}.verified")


def _fingerprint(path: Path, sha256: str) -> str:
    found = path.stat()
    return f"{sha256} {found.st_size} {found.st_mtime_ns}\n"


def _verify(path: Path, expected: str, origin: str) -> None:
    found = sha256_of(path)
    if found != expected:
        raise InputError(
            f"{origin} is not the declared file: expected sha256 {expected}, found {found} "
            f"({path.stat().st_size} bytes)"
        )
