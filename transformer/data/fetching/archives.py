"""Single texts out of archives, which are read as streams, once for all that is wanted."""

from __future__ import annotations

import io
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, cast

from transformer.data.fetching.cache import hold, is_as_noted, note
from transformer.data.fetching.space import check_space
from transformer.errors import InputError
from transformer.progress import show_bytes

_CHUNK = 2**20
# Text shrinks to a fifth or a tenth; an archive that grows by more than this holds no text.
_MOST_EXPANSION = 100


def unpacked(names: Sequence[str], folder: Path) -> dict[str, Path] | None:
    """The files that hold these members, if an earlier call has left them all in ``folder``."""
    paths = {name: folder / name for name in names}
    return paths if all(is_as_noted(path, name) for name, path in paths.items()) else None


def members(archive: Path, names: Sequence[str], folder: Path) -> dict[str, Path]:
    """The files that hold these members of a tar, unpacked into ``folder`` at first use.

    The archive is read once, as far as the last of them. Nothing else of it is written, and no
    path that stands in it is followed.

    Raises:
        InputError: if the archive is damaged or lacks a member, or one is no plain file, too
            large to be text, or without room.
    """
    for name in names:
        plain = PurePosixPath(name)
        if plain.is_absolute() or ".." in plain.parts:
            raise InputError(f"the member {name} of {archive} points outside of it")
    with hold(folder, f"unpacks {archive.name}"):
        if found := unpacked(names, folder):
            return found
        paths = {name: folder / name for name in names}
        _unpack(archive, {n: path for n, path in paths.items() if not is_as_noted(path, n)})
        return paths


def _unpack(archive: Path, wanted: dict[str, Path]) -> None:
    try:
        size = archive.stat().st_size
        with archive.open("rb") as raw, show_bytes(f"unpack {archive.name}", size) as show:
            stream = cast(IO[bytes], _Shown(raw, show))
            with tarfile.open(fileobj=stream, mode="r|*", bufsize=_CHUNK) as tar:
                for entry in tar:
                    _check_growth(archive, entry, size)
                    name = str(PurePosixPath(entry.name))
                    if name in wanted:
                        _write(archive, tar, entry, wanted.pop(name), name)
                    if not wanted:
                        return
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{archive} cannot be read: {error}; is it whole?") from error
    raise InputError(
        f"{archive} has no member {', '.join(wanted)}: it is another archive than the declared one"
    )


def _write(
    archive: Path, tar: tarfile.TarFile, entry: tarfile.TarInfo, path: Path, name: str
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    _check(archive, entry, path)
    source = tar.extractfile(entry)
    assert source is not None, "a plain file can be read"
    temporary = path.with_name(f"{path.name}.part")
    try:
        with temporary.open("wb") as out:
            for chunk in _chunks(source):
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    note(path, name)


def _check(archive: Path, entry: tarfile.TarInfo, path: Path) -> None:
    if not entry.isreg():
        raise InputError(f"{archive}: its member {entry.name} is a link or a device, not a file")
    check_space(path, entry.size, f"{entry.name} of {archive.name}")


def _check_growth(archive: Path, entry: tarfile.TarInfo, size: int) -> None:
    """Refuse to inflate the archive to the end of ``entry``, wanted or not, if that is too far."""
    end = entry.offset_data + entry.size
    if end > _MOST_EXPANSION * size:
        raise InputError(
            f"{archive} claims to grow to {end} bytes by its member {entry.name}, "
            f"more than {_MOST_EXPANSION} times its size: that is no text"
        )


class _Shown:
    """A file that tells how far it has been read."""

    def __init__(self, file: io.BufferedReader, show: Callable[[int], None]) -> None:
        self._file, self._show = file, show

    def read(self, size: int) -> bytes:
        found = self._file.read(size)
        self._show(self._file.tell())
        return found


def _chunks(source: IO[bytes]) -> Iterator[bytes]:
    while chunk := source.read(_CHUNK):
        yield chunk
