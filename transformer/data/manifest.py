"""Checksums of what a prepared corpus was made from and of every file in it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transformer.config import from_dict, to_dict
from transformer.data.fetching.checksum import sha256_of
from transformer.errors import InputError

MANIFEST_FILE = "manifest.json"
# Files up to this size are hashed whole at every start, which takes milliseconds. Of larger ones
# only some blocks are, unless they are newer than the manifest.
_SMALL_BYTES = 2**24
_BLOCKS, _BLOCK_BYTES = 64, 2**16
_MOST_NAMES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Checksum:
    """A file's size and SHA-256; ``sample`` is that of some of its blocks, if it is large."""

    bytes: int
    sha256: str
    sample: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What a prepared folder was made from and holds.

    ``sources`` are the name and SHA-256 of each text that was read, in the corpus's order, and
    ``files`` the prepared files by their path in the folder. ``digest`` is of all checksums, not
    of names, so it is the same on every machine.
    """

    sources: tuple[tuple[str, str], ...]
    files: dict[str, Checksum]
    digest: str

    def require(self, found: Manifest) -> None:
        """Check that ``found`` has the same data.

        Raises:
            InputError: naming the files that differ, source texts before what was made from them.
        """
        if found.digest == self.digest:
            return
        refuse_changed(
            [
                name
                for (name, now), (_, before) in zip(found.sources, self.sources, strict=False)
                if now != before
            ]
            or sorted(
                name
                for name in {*self.files, *found.files}
                if self.files.get(name) != found.files.get(name)
            )
        )


def refuse_changed(names: Sequence[str]) -> None:
    """Refuse to use changed data in a run.

    Raises:
        InputError: if ``names``, the files that changed, are not empty.
    """
    if names:
        named = ", ".join(list(dict.fromkeys(names))[:_MOST_NAMES])
        raise InputError(
            f"the data is not what this run began with: {named} changed; restore it, or start a "
            "new run in another --directory"
        )


def make_manifest(directory: Path, sources: Sequence[tuple[str, str]]) -> Manifest:
    """The manifest of all files in ``directory``, which were made from ``sources``."""
    files = {
        str(path.relative_to(directory)): Checksum(
            bytes=path.stat().st_size,
            sha256=sha256_of(path),
            sample=_sample(path) if path.stat().st_size > _SMALL_BYTES else None,
        )
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != MANIFEST_FILE
    }
    manifest = Manifest(sources=tuple(sources), files=files, digest="")
    return dataclasses.replace(manifest, digest=_digest(manifest))


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write ``manifest`` as JSON."""
    path.write_text(json.dumps(to_dict(manifest), indent=2) + "\n", encoding="utf-8")


def read_manifest(path: Path) -> Manifest:
    """What :func:`write_manifest` wrote.

    Raises:
        InputError: if it cannot be read or was altered.
    """
    try:
        manifest = from_dict(Manifest, json.loads(path.read_text(encoding="utf-8")), str(path))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}): restore it") from error
    if manifest.digest != _digest(manifest):
        raise InputError(f"{path} is damaged, for its digest is of other checksums: restore it")
    return manifest


def damaged_files(directory: Path, *, whole: bool) -> list[str]:
    """The files of a prepared folder that are missing or not as they were written.

    Args:
        whole: read every byte; otherwise it takes a moment at any size, and a change inside a
            large file may go unnoticed if it left the size and the date as they were
    """
    path = directory / MANIFEST_FILE
    try:
        manifest, written = read_manifest(path), path.stat().st_mtime_ns
    except InputError:
        return [MANIFEST_FILE]
    return [
        name
        for name, checksum in manifest.files.items()
        if not _is_sound(directory / name, checksum, written, whole)
    ]


def _is_sound(path: Path, checksum: Checksum, written: int, whole: bool) -> bool:
    try:
        found = path.stat()
        if found.st_size != checksum.bytes:
            return False
        if checksum.sample is None or whole or found.st_mtime_ns > written:
            return sha256_of(path) == checksum.sha256
        return _sample(path) == checksum.sample
    except FileNotFoundError:
        return False


def _sample(path: Path) -> str:
    """The SHA-256 of blocks at equal distances, the first and the last among them."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for start in np.linspace(0, path.stat().st_size - _BLOCK_BYTES, _BLOCKS, dtype=np.int64):
            file.seek(int(start))
            digest.update(file.read(_BLOCK_BYTES))
    return digest.hexdigest()


def _digest(manifest: Manifest) -> str:
    files = {name: checksum.sha256 for name, checksum in sorted(manifest.files.items())}
    content = [[sha256 for _, sha256 in manifest.sources], files]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
