"""Single texts out of archives, which are read as streams."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from filelock import FileLock
from rich.progress import Progress

from transformer.data.space import check_space
from transformer.errors import InputError

_CHUNK = 2**20
# Text shrinks to a fifth or a tenth; what grows by more than this is no text.
_MOST_EXPANSION = 100


def member(archive: Path, name: str, folder: Path) -> Path:
    """The file that holds the member ``name``, unpacked into ``folder`` at first use.

    Nothing else of the archive is written, and no path that stands in it is followed.

    Raises:
        InputError: if the archive is damaged or lacks the member, or the member is no plain file,
            too large to be text, or without room.
    """
    plain = PurePosixPath(name)
    if plain.is_absolute() or ".." in plain.parts:
        raise InputError(f"the member {name} of {archive} points outside of it")
    path = folder / plain
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not path.exists():
            temporary = path.with_name(f"{path.name}.part")
            try:
                _write_member(archive, name, temporary)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
    return path


def _write_member(archive: Path, name: str, path: Path) -> None:
    try:
        with tarfile.open(archive, "r|*") as tar:
            for entry in tar:
                if str(PurePosixPath(entry.name)) == name:
                    _check(archive, entry, path)
                    source = tar.extractfile(entry)
                    assert source is not None, "a plain file can be read"
                    _copy(source, path, entry)
                    return
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{archive} cannot be read: {error}; remove it and start again") from error
    raise InputError(f"{archive} has no member {name}: it is another archive than the declared one")


def _check(archive: Path, entry: tarfile.TarInfo, path: Path) -> None:
    if not entry.isreg():
        raise InputError(f"{archive}: its member {entry.name} is a link or a device, not a file")
    if entry.size > _MOST_EXPANSION * archive.stat().st_size:
        raise InputError(
            f"{archive}: its member {entry.name} claims {entry.size} bytes, "
            f"more than {_MOST_EXPANSION} times the archive's: that is no text"
        )
    check_space(path, entry.size, f"{entry.name} of {archive.name}")


def _copy(source: IO[bytes], path: Path, entry: tarfile.TarInfo) -> None:
    with Progress(transient=True) as progress, path.open("wb") as out:
        task = progress.add_task(PurePosixPath(entry.name).name, total=entry.size)
        for chunk in _chunks(source):
            out.write(chunk)
            progress.advance(task, len(chunk))


def _chunks(source: IO[bytes]) -> Iterator[bytes]:
    while chunk := source.read(_CHUNK):
        yield chunk
