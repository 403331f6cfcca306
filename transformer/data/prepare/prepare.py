"""From a declared corpus to a prepared folder, by stages."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from transformer.config import Config, to_dict
from transformer.corpus import Corpus, TextFile
from transformer.data.buckets import Buckets
from transformer.data.fetch.cache import cache_directory, check_space, exclusive, sha256_of
from transformer.data.fetch.download import cached_path
from transformer.data.fetch.texts import fetch, is_here
from transformer.data.languages import warn_if_unknown
from transformer.data.prepare.pairs import clean, encode
from transformer.data.prepare.scored import check_scored, write_scored
from transformer.data.prepared import (
    MANIFEST_FILE,
    VOCABULARY_FILE,
    Manifest,
    PreparedCorpus,
    damaged_files,
    make_manifest,
    read_manifest,
    read_report,
    refuse_changed,
    text_name,
    write_report,
)
from transformer.data.store import EncodedPairs
from transformer.data.vocabulary import SAMPLE_PAIRS, Vocabulary, train_vocabulary
from transformer.errors import BlockedError, InputError
from transformer.files import (
    expand_user,
    keep,
    making,
    part_of,
    remove,
    remove_unfinished,
    write_json,
)
from transformer.formats import duration, size
from transformer.parsing.trees import BRACKETS
from transformer.progress import show_activity

# Fewer pairs take a minute at most.
_MANY_PAIRS = 100_000
# Bytes per pair of news or parliament: the unpacked and the clean text, and the store.
_PAIR_BYTES = 740
# On two cores of 2.5 GHz: cleaned by one of them, encoded by each; for the vocabulary.
_CLEANED_PER_SECOND, _ENCODED_PER_SECOND, _VOCABULARY_SECONDS = 70_000, 9_000, 60
# Incremented when the same settings would give a folder with other contents.
_FORMAT = 6
# The clean text, needed until the training store is there.
_CLEAN = "clean"
_CHANGED = "changed since the run began"


def prepare(config: Config, *, expected: Manifest | None = None) -> PreparedCorpus:
    """Prepare the corpus of ``config``, or find it in the cache.

    After a kill, finished stages are kept: downloads, the clean text, the vocabulary, the training
    store. Of several processes one works and the others wait.

    Args:
        expected: the data of the run that needs the corpus; other data is refused
    """
    corpus = config.data.corpus
    contents = _source_contents(corpus, expected)
    if expected is not None:  # before any work is done on changed text
        refuse_changed(_changed_sources(corpus, contents, expected))
    directory = prepared_directory(config, contents)
    with exclusive(directory, f"prepares {corpus.name}"):
        if not directory.exists():
            try:
                _prepare(config, directory)
            except OSError as error:
                error.filename = error.filename or str(directory)  # name the full disk
                raise
    if damaged := damaged_files(directory, whole=False):
        raise BlockedError(
            f"{directory} is damaged: {', '.join(damaged)} changed since it was prepared; "
            "remove the folder and start again, which prepares it again"
        )
    manifest = read_manifest(directory / MANIFEST_FILE)
    if expected is not None:
        expected.refuse_other(manifest)
    return PreparedCorpus(directory, manifest)


def verify(config: Config, expected: Manifest | None = None) -> Iterator[tuple[Path | str, str]]:
    """Check every byte of a corpus: its declared files, and the prepared folder.

    Args:
        expected: the data of the run that is checked

    Yields:
        Each file and what is wrong with it, empty if nothing is.
    """
    corpus = config.data.corpus
    for file in dict.fromkeys(replace(file, member=None) for file in corpus.files):
        path = cached_path(file) if file.is_download else expand_user(file.location)
        if file.sha256 is not None and path.exists():  # a download may have been removed
            sound = sha256_of(path) == file.sha256
            yield path, "" if sound else "not as declared; restore it, or remove it from the cache"
    contents = _source_contents(corpus, expected)
    changed = [] if expected is None else _changed_sources(corpus, contents, expected)
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
    for name, checksum in read_manifest(directory / MANIFEST_FILE).files.items():
        problem = ""
        if name in damaged:
            problem = remedy
        elif expected is not None and expected.files.get(name) != checksum:
            problem = _CHANGED
        yield directory / name, problem


def _source_contents(corpus: Corpus, expected: Manifest | None) -> list[str]:
    """The SHA-256 of each file of a corpus, declared or computed.

    For a file that is gone it is what the run recorded: the prepared copy may still be there.
    """
    recorded = [None] * len(corpus.files) if expected is None else [x for _, x in expected.sources]
    contents: list[str] = []
    for file, before in zip(corpus.files, recorded, strict=False):
        try:
            contents.append(file.sha256 or sha256_of(_fetch(file)))
        except InputError:
            if before is None:
                raise
            contents.append(before)
    return contents


def _fetch(file: TextFile) -> Path:
    """The text on this machine; a failure is a BlockedError, as the run cannot begin yet."""
    try:
        return fetch(file)
    except InputError as error:
        raise BlockedError(str(error)) from error


def _changed_sources(corpus: Corpus, contents: Sequence[str], expected: Manifest) -> list[str]:
    """The names of texts that differ from ``expected``; members of declared archives are not
    compared.
    """
    return [
        file.name
        for file, found, (_, before) in zip(corpus.files, contents, expected.sources, strict=False)
        if (file.member is None or file.sha256 is None) and found != before
    ]


def prepared_directory(config: Config, contents: Sequence[str]) -> Path:
    """The folder of the corpus of ``config`` if its files have these checksums."""
    data = config.data
    texts = {split: len(texts) for split, texts in data.corpus.splits.items()}
    files = [
        [sha256, file.member] for sha256, file in zip(contents, data.corpus.files, strict=True)
    ]
    limits = [data.max_length, data.max_length_ratio, data.drop_duplicates]
    parts: list[object] = [_FORMAT, texts, files, config.model.vocab_size, *limits]
    parts.append(data.corpus.task)
    further = [len(text.references) for text in data.corpus.texts]
    if any(further):
        parts.append(further)
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return cache_directory() / "prepared" / f"{data.corpus.name}-{key}"


def _prepare(config: Config, directory: Path) -> None:
    """Fetch the texts and write ``directory``, whose finished stages survive a kill."""
    corpus, part = config.data.corpus, part_of(directory)
    if corpus.task == "translation":
        warn_if_unknown(corpus.target_language)
    if not part.exists():  # else much of it has been done already
        _announce(corpus)
    own_first = sorted(corpus.files, key=lambda file: file.is_download)
    paths = {file: _fetch(file) for file in own_first}
    check_scored(corpus, paths)  # before hours of the training text
    part.mkdir(exist_ok=True)
    remove_unfinished(part)
    try:
        if not (part / "train").exists():
            _train(config, paths, part)
        remove(part / _CLEAN)
        trained = (entry for entry in read_report(part) if entry.split == "train")
        write_report(part, [*trained, *write_scored(corpus, paths, part)])
        sources = [(file.name, sha256_of(paths[file])) for file in corpus.files]
        write_json(part / MANIFEST_FILE, to_dict(make_manifest(part, sources)))
    except InputError:
        remove(part)
        raise
    keep(part, directory)


def _announce(corpus: Corpus) -> None:
    """Print the downloads, disk space and time that a large corpus takes, and check the space."""
    pairs = corpus.pairs or 0
    if pairs < _MANY_PAIRS:
        return
    files = [file for file in corpus.files if file.is_download and not is_here(file)]
    lacking = {file.location: file.bytes or 0 for file in files}
    fetched = sum(lacking.values())
    needed = fetched + pairs * _PAIR_BYTES
    seconds = pairs / _CLEANED_PER_SECOND + _VOCABULARY_SECONDS
    seconds += pairs / (_ENCODED_PER_SECOND * (os.cpu_count() or 1))
    cache = cache_directory()
    print(
        f"{corpus.name}, about {pairs:,} pairs: {size(fetched)} to fetch from {len(lacking)} "
        f"addresses, about {size(needed)} of disk in {cache}, and then about {duration(seconds)}",
        file=sys.stderr,
        flush=True,
    )
    cache.mkdir(parents=True, exist_ok=True)
    check_space(cache, needed, corpus.name)


def _train(config: Config, paths: Mapping[TextFile, Path], part: Path) -> None:
    """Write the vocabulary, the training store and its report into ``part``."""
    data, vocabulary = config.data, part / VOCABULARY_FILE
    texts = [(text_name(x), paths[x.source], paths[x.target]) for x in data.corpus.train]
    text = clean(texts, part / _CLEAN, drop_duplicates=data.drop_duplicates)
    if not vocabulary.exists():
        pieces, pairs = config.model.vocab_size, min(text.pairs, SAMPLE_PAIRS)
        whole = BRACKETS if data.corpus.task == "parsing" else None
        activity = show_activity(f"learning {pieces:,} word-pieces from {pairs:,} pairs")
        with making(vocabulary) as file, activity if pairs >= _MANY_PAIRS else nullcontext():
            train_vocabulary(text.sample(SAMPLE_PAIRS), pieces, file, whole)
    with making(part / "train") as folder:
        report = encode(text, Vocabulary(vocabulary), data, folder)
        if not any(entry.kept for entry in report):
            dropped = sum((Counter(entry.dropped) for entry in report), Counter[str]())
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
            raise InputError(f"{texts[0][1]}: no pair is left of the training text ({reasons})")
        Buckets.of(EncodedPairs.open(folder).lengths).save(folder)
        write_report(part, report)
