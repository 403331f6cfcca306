"""From a declared location to a verified file on disk."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import requests
from filelock import FileLock
from rich.progress import Progress

from transformer.config import TextFile
from transformer.data import cldr
from transformer.errors import InputError

# (connect, read) in seconds
_TIMEOUT = (10, 60)
_CHUNK = 2**20

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
    if file.member is not None:
        raise InputError(
            f"{file.location} is an archive, and archives are not read yet: "
            "take another corpus, or the scale quick or small"
        )
    if file.location.startswith("builtin:"):
        return _generate(file.location.removeprefix("builtin:"))
    if file.location.startswith(("http://", "https://")):
        return _download(file)
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


def _download(file: TextFile) -> Path:
    address = file.location.partition("://")[2]
    path = cache_directory() / "downloads" / address
    path.parent.mkdir(parents=True, exist_ok=True)
    assert file.sha256 is not None, "TextFile refuses a download without one"
    with FileLock(f"{path}.lock"):
        if path.exists() and sha256_of(path) == file.sha256:
            return path
        partial = path.with_name(f"{path.name}.part")
        try:
            origin = _copy_from_mirror_or_origin(file.location, partial)
            _verify(partial, file.sha256, origin)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    return path


def _copy_from_mirror_or_origin(url: str, path: Path) -> str:
    """Write what stands at ``url``, or at its place in ``DATA_MIRROR``; return where it was."""
    mirror = os.environ.get("DATA_MIRROR", "").rstrip("/")
    address = url.partition("://")[2]
    if mirror and not mirror.startswith(("http://", "https://")):
        origin = Path(mirror).expanduser() / address
        if not origin.is_file():
            raise InputError(f"{origin} does not exist: DATA_MIRROR lacks {url}")
        shutil.copyfile(origin, path)
        return str(origin)
    origin = f"{mirror}/{address}" if mirror else url
    try:
        headers = {"Accept-Encoding": "identity"}
        with requests.get(origin, stream=True, timeout=_TIMEOUT, headers=headers) as response:
            response.raise_for_status()
            _write_body(response, path)
    except requests.RequestException as error:
        status = getattr(error.response, "status_code", None)
        reason = f"HTTP {status}" if status else type(error).__name__
        raise InputError(
            f"{origin} cannot be downloaded ({reason}); "
            "set DATA_MIRROR to a URL or a folder that holds host/path of it"
        ) from error
    return origin


def _write_body(response: requests.Response, path: Path) -> None:
    size = int(response.headers.get("Content-Length", 0)) or None
    try:
        with Progress(transient=True) as progress, path.open("wb") as out:
            task = progress.add_task(path.stem, total=size)
            for chunk in response.iter_content(_CHUNK):
                out.write(chunk)
                progress.advance(task, len(chunk))
    except requests.RequestException as error:
        raise InputError(
            f"{response.url} broke off: {response.raw.tell()} of {size or 'unknown'} bytes came; "
            "try again"
        ) from error


def _verify(path: Path, expected: str, origin: str) -> None:
    found = sha256_of(path)
    if found != expected:
        raise InputError(
            f"{origin} is not the declared file: expected sha256 {expected}, found {found} "
            f"({path.stat().st_size} bytes)"
        )
