"""Check every byte of a corpus and of the folder prepared from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from transformer.config import Config
from transformer.corpus import Corpus
from transformer.data.fetching.cache import sha256_of
from transformer.data.fetching.download import cached_path
from transformer.data.fetching.fetch import member_folder
from transformer.data.preparation.prepare import (
    changed_sources,
    prepared_directory,
    source_contents,
)
from transformer.data.prepared import MANIFEST_FILE, Manifest, damaged_files, read_manifest
from transformer.errors import InputError

_REFETCH = "not the declared file; remove it and fetch it again"
_CHANGED = "changed since the run began"


def verify(config: Config, expected: Manifest | None = None) -> Iterator[tuple[Path | str, str]]:
    """Check every byte of a corpus, in the cache and in the prepared folder.

    ``prepare`` makes a quicker check at every start, which trusts the sizes and dates of large
    files.

    Args:
        expected: the data of the run that is checked

    Yields:
        Each file and what is wrong with it, empty if nothing is.

    Raises:
        InputError: if the corpus is not prepared, or a text of it cannot be fetched.
    """
    corpus = config.data.corpus
    yield from _declared(corpus)
    contents = source_contents(corpus)
    changed = [] if expected is None else changed_sources(corpus, contents, expected)
    yield from ((name, _CHANGED) for name in changed)
    directory = prepared_directory(config, contents)
    if not directory.exists():
        if changed:
            return  # the changed text is not used by the run and need not be prepared
        raise InputError(f"{corpus.name} is not prepared as it is now: prepare it first")
    damaged = damaged_files(directory, whole=True)
    if MANIFEST_FILE in damaged:
        yield directory / MANIFEST_FILE, f"damaged; remove {directory} to prepare it again"
        return
    manifest = read_manifest(directory / MANIFEST_FILE)
    for name, checksum in manifest.files.items():
        problem = f"damaged; remove {directory} to prepare it again" if name in damaged else ""
        if not problem and expected is not None and expected.files.get(name) != checksum:
            problem = _CHANGED
        yield directory / name, problem
    yield from _members(corpus, contents, manifest)


def _declared(corpus: Corpus) -> Iterator[tuple[Path, str]]:
    """Files with a declared checksum, unless they were removed after preparation."""
    declared = {
        cached_path(file) if file.is_download else Path(file.location).expanduser(): file.sha256
        for file in corpus.files
        if file.sha256 is not None
    }
    for path, sha256 in declared.items():
        if path.exists():
            yield path, "" if sha256_of(path) == sha256 else _REFETCH


def _members(
    corpus: Corpus, contents: Sequence[str], manifest: Manifest
) -> Iterator[tuple[Path, str]]:
    """Unpacked members of archives, unless they were removed after preparation."""
    for file, archive, (_, sha256) in zip(corpus.files, contents, manifest.sources, strict=True):
        if file.member is not None and (path := member_folder(archive) / file.member).exists():
            yield path, "" if sha256_of(path) == sha256 else "damaged; remove it"
