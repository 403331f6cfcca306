"""Check every byte of a corpus and its prepared folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from transformer.config import Config
from transformer.data.fetch.cache import sha256_of
from transformer.data.fetch.download import cached_path
from transformer.data.fetch.texts import member_folder
from transformer.data.prepare.prepare import changed_sources, prepared_directory, source_contents
from transformer.data.prepared import MANIFEST_FILE, Manifest, damaged_files, read_manifest
from transformer.errors import InputError

_CHANGED = "changed since the run began"
_OTHER = "not as declared; restore it, or remove it if it is in the cache"


def verify(config: Config, expected: Manifest | None = None) -> Iterator[tuple[Path | str, str]]:
    """Check every byte of a corpus, in the cache and in the prepared folder.

    ``prepare`` makes a quicker check at every start, which trusts the sizes and dates of large
    files.

    Args:
        expected: the data of the run that is checked

    Yields:
        Each file and what is wrong with it, empty if nothing is.
    """
    corpus = config.data.corpus
    for file in dict.fromkeys(replace(file, member=None) for file in corpus.files):
        path = cached_path(file) if file.is_download else Path(file.location).expanduser()
        if file.sha256 is not None and path.exists():  # a download may have been removed
            yield path, _problem(path, file.sha256)
    contents = source_contents(corpus)
    changed = [] if expected is None else changed_sources(corpus, contents, expected)
    yield from ((name, _CHANGED) for name in changed)
    directory = prepared_directory(config, contents)
    if not directory.exists():
        if changed:
            return  # the changed text is not used by the run and need not be prepared
        raise InputError(f"{corpus.name} is not prepared as it is now: prepare it first")
    remedy = f"damaged; remove {directory} to prepare it again"
    damaged = damaged_files(directory, whole=True)
    if MANIFEST_FILE in damaged:
        yield directory / MANIFEST_FILE, remedy
        return
    manifest = read_manifest(directory / MANIFEST_FILE)
    for name, checksum in manifest.files.items():
        differs = expected is not None and expected.files.get(name) != checksum
        yield directory / name, remedy if name in damaged else _CHANGED if differs else ""
    for file, archive, (_, sha256) in zip(corpus.files, contents, manifest.sources, strict=True):
        if file.member is not None and (path := member_folder(archive) / file.member).exists():
            yield path, _problem(path, sha256)


def _problem(path: Path, sha256: str) -> str:
    return "" if sha256_of(path) == sha256 else _OTHER
