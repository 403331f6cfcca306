"""The complete check of a corpus: every byte in the cache of downloads and in the prepared folder.

``prepare`` itself checks at every start, but trusts sizes and dates where files are large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from transformer.config import Config
from transformer.corpus import Corpus
from transformer.data.fetching.checksum import sha256_of
from transformer.data.fetching.fetch import member_folder
from transformer.data.fetching.mirror import cached_path
from transformer.data.manifest import MANIFEST_FILE, Manifest, damaged_files, read_manifest
from transformer.data.preparation.sources import (
    changed_sources,
    prepared_directory,
    source_contents,
)
from transformer.errors import InputError

_FETCHED_AGAIN = "not the declared file; remove it and fetch it again"
_OTHER_DATA = "changed since the run began"


def verify(config: Config, noted: Manifest | None = None) -> Iterator[tuple[Path | str, str]]:
    """Each file of a corpus that was checked, and what is wrong with it, empty if nothing is.

    Args:
        noted: the data of the run that is checked

    Raises:
        InputError: if the corpus is not prepared, or a text of it cannot be had.
    """
    corpus = config.data.corpus
    yield from _declared(corpus)
    contents = source_contents(corpus)
    changed = [] if noted is None else changed_sources(corpus, contents, noted)
    yield from ((name, _OTHER_DATA) for name in changed)
    directory = prepared_directory(config, contents)
    if not directory.exists():
        if changed:
            return  # what is not used by the run need not be prepared
        raise InputError(f"{corpus.name} is not prepared as it is now: prepare it first")
    damaged = damaged_files(directory, whole=True)
    if MANIFEST_FILE in damaged:
        yield directory / MANIFEST_FILE, f"damaged; remove {directory} to prepare it anew"
        return
    manifest = read_manifest(directory / MANIFEST_FILE)
    for name, checksum in manifest.files.items():
        problem = f"damaged; remove {directory} to prepare it anew" if name in damaged else ""
        if not problem and noted is not None and noted.files.get(name) != checksum:
            problem = _OTHER_DATA
        yield directory / name, problem
    yield from _members(corpus, contents, manifest)


def _declared(corpus: Corpus) -> Iterator[tuple[Path, str]]:
    """Files with a declared checksum; they may have been removed once the corpus was prepared."""
    declared = {
        cached_path(file) if file.is_download else Path(file.location).expanduser(): file.sha256
        for file in corpus.files
        if file.sha256 is not None
    }
    for path, sha256 in declared.items():
        if path.exists():
            yield path, "" if sha256_of(path) == sha256 else _FETCHED_AGAIN


def _members(
    corpus: Corpus, contents: Sequence[str], manifest: Manifest
) -> Iterator[tuple[Path, str]]:
    """Unpacked members of archives, which may have been removed too."""
    for file, archive, (_, sha256) in zip(corpus.files, contents, manifest.sources, strict=True):
        if file.member is not None and (path := member_folder(archive) / file.member).exists():
            yield path, "" if sha256_of(path) == sha256 else "damaged; remove it"
