"""Whether the texts of a corpus, and the folder prepared from them, are unchanged."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from transformer.config import Config
from transformer.corpus import Corpus
from transformer.data.fetching.cache import cache_directory, sha256_of
from transformer.data.fetching.download import cached_path
from transformer.data.fetching.fetch import fetch, member_folder
from transformer.data.preparation.cleaning import LocalText
from transformer.data.prepared import MANIFEST_FILE, Manifest, damaged_files, read_manifest
from transformer.errors import InputError

# Incremented when the same settings would give a folder with other contents.
_FORMAT = 5
_REFETCH = "not the declared file; remove it and fetch it again"
_CHANGED = "changed since the run began"


def source_contents(corpus: Corpus) -> list[str]:
    """The SHA-256 of each file of a corpus: declared, or else computed.

    Raises:
        InputError: if a file without a declared checksum cannot be fetched.
    """
    return [file.sha256 or sha256_of(fetch(file)) for file in corpus.files]


def changed_sources(corpus: Corpus, contents: Sequence[str], expected: Manifest) -> list[str]:
    """The names of texts that differ from ``expected``; archive members are not compared."""
    return [
        file.name
        for file, found, (_, before) in zip(corpus.files, contents, expected.sources, strict=False)
        if file.member is None and found != before
    ]


def prepared_directory(config: Config, contents: Sequence[str]) -> Path:
    """Where the corpus of ``config`` is prepared if its files have these checksums."""
    data = config.data
    texts = {split: len(texts) for split, texts in data.corpus.splits.items()}
    files = [
        [sha256, file.member] for sha256, file in zip(contents, data.corpus.files, strict=True)
    ]
    limits = [data.max_length, data.max_length_ratio, data.drop_duplicates]
    parts = [_FORMAT, texts, files, config.model.vocab_size, *limits]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return cache_directory() / "prepared" / f"{data.corpus.name}-{key}"


def with_names(corpus: Corpus, manifest: Manifest) -> Manifest:
    """``manifest`` with the names in this corpus: one of equal text may have written it."""
    named = zip(corpus.files, manifest.sources, strict=True)
    return dataclasses.replace(manifest, sources=tuple((file.name, x) for file, (_, x) in named))


def sources_read(
    corpus: Corpus, contents: Sequence[str], local: dict[str, list[LocalText]]
) -> list[tuple[str, str]]:
    """The name and SHA-256 of each file, computed after it was read.

    Raises:
        InputError: if a file no longer has the checksum in ``contents``.
    """
    paths = [path for texts in local.values() for text in texts for path in text]
    sources = [(file.name, sha256_of(path)) for file, path in zip(corpus.files, paths, strict=True)]
    for file, path, expected, (_, found) in zip(
        corpus.files, paths, contents, sources, strict=True
    ):
        if file.member is None and found != expected:
            reason = (
                "changed while it was read: start again"
                if file.sha256 is None
                else "is not the declared file: remove it and fetch it again"
            )
            raise InputError(f"{path} {reason}")
    return sources


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
