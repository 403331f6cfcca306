"""The texts that a corpus is prepared from: their checksums, and the folder named after them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from transformer.config import Config
from transformer.corpus import Corpus
from transformer.data.fetching.cache import cache_directory
from transformer.data.fetching.checksum import sha256_of
from transformer.data.fetching.fetch import fetch
from transformer.data.manifest import Manifest
from transformer.data.preparation.cleaning import LocalText
from transformer.errors import InputError

# Counts up when the same settings would give another folder.
_FORMAT = 5


def source_contents(corpus: Corpus) -> list[str]:
    """The SHA-256 of each file of a corpus: as declared, or else computed.

    Raises:
        InputError: if a file without a declared checksum cannot be had.
    """
    return [file.sha256 or sha256_of(fetch(file)) for file in corpus.files]


def changed_sources(corpus: Corpus, contents: Sequence[str], expected: Manifest) -> list[str]:
    """The names of the texts that are not as ``expected``; members of archives are left out."""
    return [
        file.name
        for file, found, (_, before) in zip(corpus.files, contents, expected.sources, strict=False)
        if file.member is None and found != before
    ]


def prepared_directory(config: Config, contents: Sequence[str]) -> Path:
    """Where the corpus of ``config`` is prepared, if its files have these contents."""
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
    """``manifest`` with the names of this corpus: another with the same text may have made it."""
    named = zip(corpus.files, manifest.sources, strict=True)
    return dataclasses.replace(manifest, sources=tuple((file.name, x) for file, (_, x) in named))


def sources_read(
    corpus: Corpus, contents: Sequence[str], local: dict[str, list[LocalText]]
) -> list[tuple[str, str]]:
    """Name and SHA-256 of each file, after it has been read.

    Raises:
        InputError: if one is no longer what ``contents`` say.
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
