"""From declared locations to verified files on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from transformer.corpus import TextFile
from transformer.data.corpora import cldr
from transformer.data.fetch.archives import unpack_members
from transformer.data.fetch.cache import (
    cache_directory,
    check_sha256,
    part_of,
    sha256_of,
    write_once,
)
from transformer.data.fetch.download import cached_path, fetch_download
from transformer.data.fetch.testsets import is_available, split_location, text_side
from transformer.data.fetch.treebanks import missing_trees, treebank_side
from transformer.errors import InputError

# Text that the project generates: the version, which determines its bytes, and the generator.
_GENERATORS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "cldr_en_de": (cldr.VERSION, cldr.write)
}


def fetch(file: TextFile) -> Path:
    """A local file with the declared content: the user's own, generated, cached or downloaded.

    Raises:
        InputError: if it cannot be fetched, or is not the declared file.
    """
    return fetch_all([file])[file]


def fetch_all(files: Iterable[TextFile]) -> dict[TextFile, Path]:
    """As :func:`fetch` for several files: each archive is read once, the user's own come first."""
    groups: dict[tuple[str, str | None], list[TextFile]] = {}
    for file in sorted(files, key=lambda file: file.is_download):
        groups.setdefault((file.location, file.sha256), []).append(file)
    paths: dict[TextFile, Path] = {}
    for group in groups.values():
        names = [file.member for file in group if file.member is not None]
        members = _members(group[0], names) if names else {}
        for file in group:
            paths[file] = _whole(file) if file.member is None else members[file.member]
    return paths


def missing(files: Iterable[TextFile]) -> dict[str, int | None]:
    """The addresses from which ``files`` have yet to be fetched, each with its missing bytes.

    None stands for an undeclared size.
    """
    found: dict[str, int | None] = {}
    for file in files:
        if file.location.startswith("treebank:"):
            found |= missing(missing_trees(file.location))
        elif file.location.startswith("sacrebleu:"):
            name, pair, _ = split_location(file.location)
            if not is_available(name, pair):
                found[f"sacrebleu:{name}/{pair}"] = None
        elif file.is_download and not _is_here(file):
            begun = part_of(cached_path(file))
            done = begun.stat().st_size if begun.exists() else 0
            found[file.location] = None if file.bytes is None else max(0, file.bytes - done)
    return found


def _is_here(file: TextFile) -> bool:
    places = [cached_path(file)]
    if file.member is not None and file.sha256 is not None:
        places.append(member_folder(file.sha256) / file.member)
    return any(place.exists() for place in places)


def member_folder(sha256: str) -> Path:
    """Where members of the archive with this checksum are unpacked."""
    return cache_directory() / "members" / sha256[:16]


def _members(archive: TextFile, names: list[str]) -> dict[str, Path]:
    """These members of an archive, which may have been removed after they were unpacked."""
    if archive.sha256 is not None:
        paths = {name: member_folder(archive.sha256) / name for name in names}
        if all(path.exists() for path in paths.values()):
            return paths
    whole = _whole(archive)
    return unpack_members(whole, names, member_folder(archive.sha256 or sha256_of(whole)))


def _whole(file: TextFile) -> Path:
    """The declared file, which may be an archive."""
    scheme, _, rest = file.location.partition(":")
    if file.is_download:
        return fetch_download(file)
    if scheme == "builtin":
        generator, _, name = rest.partition("/")
        version, write = _GENERATORS[generator]
        return write_once(cache_directory() / "builtin" / f"{generator}-{version}", write) / name
    if scheme == "treebank":
        return treebank_side(file.location)
    if scheme == "sacrebleu":
        return text_side(file.location)
    path = Path(file.location).expanduser()
    if not path.is_file():
        raise InputError(f"{path} does not exist: check its path")
    if file.sha256 is not None:
        check_sha256(path, file.sha256, path)
    return path
