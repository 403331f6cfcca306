"""Texts extracted from tar archives, in one pass through each archive."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from transformer.data.fetch.cache import check_space, exclusive, making
from transformer.errors import InputError
from transformer.progress import show_progress

_CHUNK = 2**20


def unpack_members(archive: Path, names: Sequence[str], folder: Path) -> dict[str, Path]:
    """The files of these members of a tar, unpacked into ``folder`` on first use.

    The archive is read once, up to the last of them. Nothing else is written, and no path or link
    in the archive is followed.
    """
    paths = {name: folder / name for name in names}
    for name, path in paths.items():
        if not path.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"the member {name} of {archive} points outside of it")
    with exclusive(folder, f"unpacks {archive.name}"):
        wanted = {name: path for name, path in paths.items() if not path.exists()}
        try:
            if wanted:
                _unpack(archive, wanted)
        except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise InputError(f"{archive} cannot be read: {error}; is it whole?") from error
    return paths


def _unpack(archive: Path, wanted: dict[str, Path]) -> None:
    size = archive.stat().st_size
    with (
        archive.open("rb") as raw,
        show_progress(f"unpack {archive.name}", size, in_bytes=True) as show,
        tarfile.open(fileobj=raw, mode="r|*", bufsize=_CHUNK) as tar,
    ):
        for entry in tar:
            path = wanted.pop(str(PurePosixPath(entry.name)), None) if entry.isreg() else None
            if path is None:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            check_space(path, entry.size, f"{entry.name} of {archive.name}")
            source = tar.extractfile(entry)
            assert source is not None, "a plain file can be read"
            with making(path) as part, part.open("wb") as out:
                while chunk := source.read(_CHUNK):
                    out.write(chunk)
                    show(raw.tell())
            if not wanted:
                return
    raise InputError(
        f"{archive} has no file {', '.join(wanted)}: it is another archive than the declared one"
    )
