"""From a declared corpus to a prepared folder: fetch, clean, learn the vocabulary, encode."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

from transformer.config import Config, to_dict
from transformer.corpus import Corpus, ParallelText
from transformer.data.buckets import Buckets
from transformer.data.fetching.cache import cache_directory, exclusive, sha256_of
from transformer.data.fetching.fetch import fetch, fetch_all, missing
from transformer.data.fetching.testsets import split_location
from transformer.data.linearised import BRACKETS
from transformer.data.preparation.cleaning import CleanText, LocalText, clean
from transformer.data.preparation.encoding import Encoding, encode, text_report
from transformer.data.preparation.estimate import announce
from transformer.data.preparation.workers import default_workers, in_subprocess
from transformer.data.prepared import (
    MANIFEST_FILE,
    REPORT_FILE,
    VOCABULARY_FILE,
    Manifest,
    PreparedCorpus,
    TextReport,
    damaged_files,
    make_manifest,
    read_manifest,
    refuse_changed,
)
from transformer.data.store import TokenStore, write_store
from transformer.data.text import read_aligned
from transformer.data.vocabulary import SAMPLE_PAIRS, Vocabulary, train_vocabulary
from transformer.errors import InputError
from transformer.files import rename, write_json
from transformer.progress import show_activity

# Learning the vocabulary of more pairs takes so long that one may want to interrupt it.
_LONG_TEXT = 100_000
# Incremented when the same settings would give a folder with other contents.
_FORMAT = 5


def prepare(
    config: Config, *, workers: int | None = None, expected: Manifest | None = None
) -> PreparedCorpus:
    """Prepare the corpus of ``config``, or find it in the cache.

    A preparation that was killed is continued. Of several processes one works and the others wait.

    Args:
        workers: processes that clean and encode; None for one per core, up to 16. It does not
            affect the result
        expected: the data of the run that needs the corpus; other data is refused

    Raises:
        InputError: if a file cannot be fetched or used, no pair is left, the cached folder is
            damaged, or the data differs from ``expected``.
    """
    corpus = config.data.corpus
    contents = source_contents(corpus)
    if expected is not None:  # before any work is done on changed text
        refuse_changed(changed_sources(corpus, contents, expected))
    directory = prepared_directory(config, contents)
    work = directory.with_name(f"{directory.name}.work")
    with exclusive(directory, f"prepares {corpus.name}"):
        if not directory.exists():
            workers = workers or default_workers()
            part = directory.with_name(f"{directory.name}.part")
            if not part.exists():  # else much of it has been done already
                announce(corpus.name, corpus.pairs, missing(corpus.files), workers)
            local = fetch_all(corpus.splits)
            for folder in (work, part):
                folder.mkdir(exist_ok=True)
            try:
                _write(config, local, part, work, workers)
                sources = _sources_read(corpus, contents, local)
                write_json(part / MANIFEST_FILE, to_dict(make_manifest(part, sources)))
            except InputError:
                shutil.rmtree(part)
                shutil.rmtree(work)
                raise
            except OSError as error:
                raise _with_advice(error) from error
            rename(part, directory)
        shutil.rmtree(work, ignore_errors=True)
    if damaged := damaged_files(directory, whole=False):
        raise InputError(
            f"{directory} is damaged: {', '.join(damaged)} changed since it was prepared; "
            "remove the folder and start again, which prepares it again"
        )
    manifest = read_manifest(directory / MANIFEST_FILE)
    # The names of this corpus: one of equal text may have written the folder.
    named = zip(corpus.files, manifest.sources, strict=True)
    manifest = replace(manifest, sources=tuple((file.name, x) for file, (_, x) in named))
    if expected is not None:
        expected.require(manifest)
    return PreparedCorpus(directory, manifest)


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
    # Translations had their folders before there were other tasks.
    task = [] if data.corpus.task == "translation" else [data.corpus.task]
    parts = [_FORMAT, texts, files, config.model.vocab_size, *limits, *task]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return cache_directory() / "prepared" / f"{data.corpus.name}-{key}"


def _sources_read(
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


def _with_advice(error: OSError) -> OSError:
    """The error with what to do about it if the disk is full, else unchanged."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return error
    reason = (
        f"{error.strerror} ({cache_directory()}): make room and start again, which continues where "
        "this ended, or set DATA_CACHE to another disk"
    )
    return OSError(error.errno, reason)


def _write(
    config: Config, local: dict[str, list[LocalText]], part: Path, work: Path, workers: int
) -> None:
    """Write all files into ``part``; ``work`` holds what a later start needs to continue."""
    data = config.data
    text = clean(local["train"], work, with_hashes=data.drop_duplicates, workers=workers)
    vocabulary = part / VOCABULARY_FILE
    if not vocabulary.exists():
        whole = BRACKETS if data.corpus.task == "parsing" else None
        learn_vocabulary(text, config.model.vocab_size, work / VOCABULARY_FILE, whole)
        (work / VOCABULARY_FILE).replace(vocabulary)
    fates = encode(
        text,
        Encoding(
            vocabulary=vocabulary,
            max_length=data.max_length,
            max_length_ratio=data.max_length_ratio,
        ),
        part / "train",
        work,
        workers=workers,
    )
    report = [
        text_report(_text_name(declared), text, number, fates)
        for number, declared in enumerate(data.corpus.train)
    ]
    if not any(entry.kept for entry in report):
        dropped: Counter[str] = sum((Counter(entry.dropped) for entry in report), Counter())
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
        raise InputError(
            f"{local['train'][0][0]}: no pair is left of the training text ({reasons})"
        )
    Buckets.of(TokenStore(part / "train").lengths).save(part / "train")
    for split in ("valid", "test"):
        if split in local:
            lines = _write_scored(local[split][0], Vocabulary(vocabulary), part / split)
            name = _text_name(data.corpus.splits[split][0])
            report.append(TextReport(split=split, text=name, lines=lines, kept=lines))
    entries = [to_dict(entry) for entry in report]
    (part / REPORT_FILE).write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")


def learn_vocabulary(
    text: CleanText, size: int, path: Path, whole: re.Pattern[str] | None = None
) -> None:
    """Learn the vocabulary from a sample of ``text``, in a separate process if it is long.

    Args:
        whole: words that are one word-piece each, see :func:`train_vocabulary`

    Raises:
        InputError: if the text does not allow so many word-pieces, or needs more.
    """
    learn = partial(_learn, text, size, whole)
    if text.pairs < _LONG_TEXT:
        learn(path)
        return
    pairs = min(text.pairs, SAMPLE_PAIRS)
    with show_activity(f"learning {size:,} word-pieces from {pairs:,} pairs"):
        in_subprocess(learn, path)


def _learn(text: CleanText, size: int, whole: re.Pattern[str] | None, path: Path) -> None:
    train_vocabulary(text.sample(SAMPLE_PAIRS), size, path, whole)


def _text_name(text: ParallelText) -> str:
    """A text's name for display: the end of its source's path, or the name of a test set."""
    file = text.source
    if file.location.startswith("sacrebleu:"):
        return split_location(file.location)[0]
    *folder, name = PurePosixPath(file.member or file.location).parts[-2:]
    return "/".join([*folder, name.partition(".")[0]])


def _write_scored(text: LocalText, vocabulary: Vocabulary, directory: Path) -> int:
    """Write a split that is scored, with every line, or scores would be of another set."""
    directory.mkdir(exist_ok=True)
    sides = read_aligned(*text)
    for name, lines in zip(("source.txt", "reference.txt"), sides, strict=True):
        (directory / name).write_text("".join(f"{x}\n" for x in lines), encoding="utf-8")
    source, target = map(vocabulary.encode, sides)
    write_store(directory, zip(source, target, strict=True), len(vocabulary))
    return len(source)
