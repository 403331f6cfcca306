"""From a declared location to a verified file on disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from transformer.corpus import ParallelText, TextFile
from transformer.data.corpora import cldr
from transformer.data.corpora.treebanks import TreebankText
from transformer.data.fetching import treebanks
from transformer.data.fetching.archives import unpack_members, unpacked_members
from transformer.data.fetching.cache import (
    cache_directory,
    check_sha256,
    exclusive,
    is_verified,
    sha256_of,
)
from transformer.data.fetching.download import cached_path, fetch_download, partial_path
from transformer.data.fetching.testsets import is_available, split_location, text_side
from transformer.errors import InputError

# Text that the project generates: the version, which determines its bytes, and the generator.
_GENERATORS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "cldr_en_de": (cldr.VERSION, cldr.write)
}


def fetch_all(
    splits: Mapping[str, Sequence[ParallelText]],
) -> dict[str, list[tuple[Path, Path]]]:
    """Source and target file of every text, by split; each archive is read once.

    Raises:
        InputError: as :func:`fetch`; errors in the user's own files come before any download.
    """
    paths: dict[TextFile, Path] = {}
    texts = [text for split in splits.values() for text in split]
    files = [file for text in texts for file in (text.source, text.target)]
    for group in sorted(_by_origin(files), key=lambda group: group[0].is_download):
        paths |= _fetch_together(group)
    return {
        split: [(paths[text.source], paths[text.target]) for text in texts]
        for split, texts in splits.items()
    }


def missing(files: Iterable[TextFile]) -> list[tuple[str, int | None]]:
    """The addresses from which ``files`` have yet to be fetched, each with its missing bytes.

    None stands for an undeclared size. Only the sizes and dates of cached files are looked at.
    """
    found: list[tuple[str, int | None]] = []
    for group in _by_origin(part for file in files for part in _parts(file)):
        first = group[0]
        if first.is_download and not _is_here(group):
            begun = partial_path(cached_path(first))
            done = begun.stat().st_size if begun.exists() else 0
            found.append(
                (first.location, None if first.bytes is None else max(0, first.bytes - done))
            )
        elif first.location.startswith("sacrebleu:"):
            name, pair, _ = split_location(first.location)
            if not is_available(name, pair) and (f"sacrebleu:{name}/{pair}", None) not in found:
                found.append((f"sacrebleu:{name}/{pair}", None))
    return found


def fetch(file: TextFile) -> Path:
    """A local file with the declared content: the user's own, generated, cached or downloaded.

    Raises:
        InputError: if it cannot be fetched, or is not the declared file.
    """
    return _fetch_together([file])[file]


def _by_origin(files: Iterable[TextFile]) -> list[list[TextFile]]:
    """``files`` grouped by archive."""
    groups: dict[tuple[str, str | None], dict[TextFile, None]] = {}
    for file in files:
        groups.setdefault((file.location, file.sha256), {})[file] = None
    return [list(group) for group in groups.values()]


def _parts(file: TextFile) -> list[TextFile]:
    """What is fetched for ``file``: itself, or the files of a treebank that is not here yet."""
    if not file.location.startswith("treebank:"):
        return [file]
    return treebanks.lacking(TreebankText.of(file.location))


def _fetch_together(group: list[TextFile]) -> dict[TextFile, Path]:
    """The files of one location; there can be several if it is an archive."""
    names = _members(group)
    whole: Path | None = None
    paths: dict[str, Path] = {}
    if names:
        # Once its members are unpacked, an archive is not needed and may have been removed.
        known = group[0].sha256
        found = None if known is None else unpacked_members(names, member_folder(known))
        if found is None:
            whole = _whole(group[0])
            found = unpack_members(whole, names, member_folder(known or sha256_of(whole)))
        paths = found
    return {
        file: (whole or _whole(file)) if file.member is None else paths[file.member]
        for file in group
    }


def _members(group: Iterable[TextFile]) -> list[str]:
    return [file.member for file in group if file.member is not None]


def member_folder(sha256: str) -> Path:
    """Where the members of the archive with this checksum are unpacked."""
    return cache_directory() / "members" / sha256[:16]


def _whole(file: TextFile) -> Path:
    """The declared file, which may be an archive."""
    scheme, _, rest = file.location.partition(":")
    if file.is_download:
        return fetch_download(file)
    if scheme == "builtin":
        generator, _, member = rest.partition("/")
        version, write = _GENERATORS[generator]
        return _written(cache_directory() / "builtin" / f"{generator}-{version}", write) / member
    if scheme == "treebank":
        text = TreebankText.of(file.location)
        directory = _written(treebanks.directory_of(text), partial(treebanks.write_sides, text))
        return directory / text.file_name(text.side)
    if scheme == "sacrebleu":
        return text_side(file.location)
    return _own(Path(file.location).expanduser(), file)


def _own(path: Path, file: TextFile) -> Path:
    """A file of the user's, which is used in place."""
    if not path.is_file():
        raise InputError(f"{path} does not exist: check its path")
    if file.sha256 is not None:
        check_sha256(file.sha256, sha256_of(path), path)
    return path


def _written(directory: Path, write: Callable[[Path], None]) -> Path:
    """``directory``, filled by ``write`` unless it exists."""
    with exclusive(directory, f"writes {directory.name}"):
        if not directory.exists():
            temporary = directory.with_name(f"{directory.name}.part")
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            try:
                write(temporary)
                temporary.replace(directory)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return directory


def _is_here(group: list[TextFile]) -> bool:
    """Whether a download, or every member wanted from it, is in the cache, judging by sizes."""
    sha256, names = group[0].sha256, _members(group)
    assert sha256 is not None, "TextFile refuses a download without one"
    if is_verified(cached_path(group[0]), sha256):
        return True
    return len(names) == len(group) and unpacked_members(names, member_folder(sha256)) is not None
