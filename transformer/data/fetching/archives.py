"""Texts extracted from tar archives, in one pass through each archive."""

from __future__ import annotations

import io
import lzma
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, cast

from transformer.data.fetching.cache import check_space, exclusive, is_verified, mark_verified
from transformer.errors import InputError
from transformer.files import rename
from transformer.progress import show_progress

_CHUNK = 2**20
# Text compresses to a fifth or a tenth; an archive that expands by more than this is no text.
_MAX_EXPANSION = 100


def unpacked_members(names: Sequence[str], folder: Path) -> dict[str, Path] | None:
    """The files of these members, if an earlier call unpacked them all into ``folder``."""
    paths = {name: folder / name for name in names}
    return paths if all(is_verified(path, name) for name, path in paths.items()) else None


def unpack_members(archive: Path, names: Sequence[str], folder: Path) -> dict[str, Path]:
    """The files of these members of a tar, unpacked into ``folder`` on first use.

    The archive is read once, up to the last of them. Nothing else is written, and no path in the
    archive is followed.

    Raises:
        InputError: if the archive is damaged or lacks a member, or a member is no plain file or too
            large to be text, or there is no room for it.
    """
    for name in names:
        plain = PurePosixPath(name)
        if plain.is_absolute() or ".." in plain.parts:
            raise InputError(f"the member {name} of {archive} points outside of it")
    with exclusive(folder, f"unpacks {archive.name}"):
        if found := unpacked_members(names, folder):
            return found
        paths = {name: folder / name for name in names}
        _unpack(archive, {n: path for n, path in paths.items() if not is_verified(path, n)})
        return paths


def _unpack(archive: Path, wanted: dict[str, Path]) -> None:
    try:
        size = archive.stat().st_size
        with (
            archive.open("rb") as raw,
            show_progress(f"unpack {archive.name}", size, in_bytes=True) as show,
        ):
            stream = cast(IO[bytes], _WithProgress(raw, show))
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
    if not entry.isreg():
        raise InputError(f"{archive}: its member {entry.name} is a link or a device, not a file")
    check_space(path, entry.size, f"{entry.name} of {archive.name}")
    source = tar.extractfile(entry)
    assert source is not None, "a plain file can be read"
    temporary = path.with_name(f"{path.name}.part")
    try:
        with temporary.open("wb") as out:
            shutil.copyfileobj(source, out, _CHUNK)
            out.flush()
            os.fsync(out.fileno())
        rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    mark_verified(path, name)


def _check_growth(archive: Path, entry: tarfile.TarInfo, size: int) -> None:
    """Refuse to inflate the archive to the end of ``entry``, wanted or not, if that is too much."""
    end = entry.offset_data + entry.size
    if end > _MAX_EXPANSION * size:
        raise InputError(
            f"{archive} claims to grow to {end} bytes by its member {entry.name}, "
            f"more than {_MAX_EXPANSION} times its size: that is no text"
        )


class _WithProgress:
    """A file whose reads are reported to ``show``."""

    def __init__(self, file: io.BufferedReader, show: Callable[[int], None]) -> None:
        self._file, self._show = file, show

    def read(self, size: int) -> bytes:
        found = self._file.read(size)
        self._show(self._file.tell())
        return found
