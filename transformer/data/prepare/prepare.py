"""From a declared corpus to a prepared folder, by stages."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

from transformer.config import Config, to_dict
from transformer.corpus import Corpus, ParallelText, TextFile
from transformer.data.buckets import Buckets
from transformer.data.fetch.cache import (
    cache_directory,
    exclusive,
    keep,
    making,
    part_of,
    remove,
    sha256_of,
)
from transformer.data.fetch.testsets import split_location
from transformer.data.fetch.texts import fetch, fetch_all
from transformer.data.prepare.clean import KEPT, CleanText, clean
from transformer.data.prepare.encode import encode
from transformer.data.prepare.estimate import announce
from transformer.data.prepare.parallel import default_workers, in_subprocess
from transformer.data.prepared import (
    MANIFEST_FILE,
    VOCABULARY_FILE,
    Manifest,
    PreparedCorpus,
    TextReport,
    damaged_files,
    make_manifest,
    read_manifest,
    read_report,
    refuse_changed,
    write_report,
    write_whole,
)
from transformer.data.store import TokenStore, write_store
from transformer.data.text import read_aligned
from transformer.data.trees import BRACKETS
from transformer.data.vocabulary import SAMPLE_PAIRS, Vocabulary, train_vocabulary
from transformer.errors import InputError
from transformer.progress import show_activity

# Learning the vocabulary of more pairs takes so long that one may want to interrupt it.
_LONG_TEXT = 100_000
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Incremented when the same settings would give a folder with other contents.
_FORMAT = 6
# The clean text, needed until the training store is there.
_CLEAN = "clean"


def prepare(
    config: Config, *, workers: int | None = None, expected: Manifest | None = None
) -> PreparedCorpus:
    """Prepare the corpus of ``config``, or find it in the cache.

    After a kill, finished stages are kept: downloads, the clean text, the vocabulary, the training
    store. Of several processes one works and the others wait.

    Args:
        workers: processes that clean and encode; None for one per core, up to 16. It does not
            affect the result
        expected: the data of the run that needs the corpus; other data is refused
    """
    corpus = config.data.corpus
    contents = source_contents(corpus)
    if expected is not None:  # before any work is done on changed text
        refuse_changed(changed_sources(corpus, contents, expected))
    directory = prepared_directory(config, contents)
    with exclusive(directory, f"prepares {corpus.name}"):
        if not directory.exists():
            try:
                _prepare(config, contents, directory, workers or default_workers())
            except OSError as error:
                if error.errno not in _DISK_FULL:
                    raise
                reason = (
                    f"{error.strerror} ({cache_directory()}): make room, or set DATA_CACHE to "
                    "another disk, and start again; finished stages are kept"
                )
                raise OSError(error.errno, reason) from error
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
    """The SHA-256 of each file of a corpus: declared, or else computed."""
    return [file.sha256 or sha256_of(fetch(file)) for file in corpus.files]


def changed_sources(corpus: Corpus, contents: Sequence[str], expected: Manifest) -> list[str]:
    """The names of texts that differ from ``expected``; archive members are not compared."""
    return [
        file.name
        for file, found, (_, before) in zip(corpus.files, contents, expected.sources, strict=False)
        if file.member is None and found != before
    ]


def prepared_directory(config: Config, contents: Sequence[str]) -> Path:
    """The folder of the corpus of ``config`` if its files have these checksums."""
    data = config.data
    texts = {split: len(texts) for split, texts in data.corpus.splits.items()}
    files = [
        [sha256, file.member] for sha256, file in zip(contents, data.corpus.files, strict=True)
    ]
    limits = [data.max_length, data.max_length_ratio, data.drop_duplicates]
    parts = [_FORMAT, texts, files, config.model.vocab_size, *limits, data.corpus.task]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return cache_directory() / "prepared" / f"{data.corpus.name}-{key}"


def _prepare(config: Config, contents: Sequence[str], directory: Path, workers: int) -> None:
    """Fetch the texts and write ``directory``, whose finished stages survive a kill."""
    corpus, part = config.data.corpus, part_of(directory)
    if not part.exists():  # else much of it has been done already
        announce(corpus, workers)
    paths = fetch_all(corpus.files)
    part.mkdir(exist_ok=True)
    try:
        if not (part / "train").exists():
            _train(config, paths, part, workers)
        remove(part / _CLEAN)
        trained = (entry for entry in read_report(part) if entry.split == "train")
        write_report(part, [*trained, *_scored(corpus, paths, part)])
        sources = _sources_read(corpus, contents, paths)
        write_whole(part / MANIFEST_FILE, to_dict(make_manifest(part, sources)))
    except InputError:
        remove(part)
        raise
    keep(part, directory)


def _train(config: Config, paths: Mapping[TextFile, Path], part: Path, workers: int) -> None:
    """Write the vocabulary, the training store and its report into ``part``."""
    data, vocabulary = config.data, part / VOCABULARY_FILE
    texts = [(paths[text.source], paths[text.target]) for text in data.corpus.train]
    text = clean(texts, part / _CLEAN, workers=workers)
    if not vocabulary.exists():
        whole = BRACKETS if data.corpus.task == "parsing" else None
        with making(vocabulary) as file:
            learn_vocabulary(text, config.model.vocab_size, file, whole)
    with making(part / "train") as folder:
        fates = encode(text, vocabulary, data, folder, workers=workers)
        total = sum(fates, Counter[str]())
        if not total[KEPT]:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in total.items())
            raise InputError(f"{texts[0][0]}: no pair is left of the training text ({reasons})")
        Buckets.of(TokenStore(folder).lengths).save(folder)
        each = zip(data.corpus.train, text.fates, fates, strict=True)
        write_report(part, list(itertools.starmap(_train_report, each)))


def learn_vocabulary(
    text: CleanText, size: int, path: Path, whole: re.Pattern[str] | None = None
) -> None:
    """Learn the vocabulary from a sample of ``text``, in a separate process if it is long.

    Args:
        whole: words that are one word-piece each, see :func:`train_vocabulary`
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


def _train_report(text: ParallelText, cleaned: Counter[str], encoded: Counter[str]) -> TextReport:
    dropped = {k: v for k, v in (cleaned + encoded).items() if k != KEPT}
    return TextReport(
        split="train",
        text=_text_name(text),
        lines=cleaned.total(),
        kept=encoded[KEPT],
        dropped=dict(sorted(dropped.items())),
    )


def _text_name(text: ParallelText) -> str:
    """A text's name for display: the end of its source's path, or the name of a test set."""
    file = text.source
    if file.location.startswith("sacrebleu:"):
        return split_location(file.location)[0]
    *folder, name = PurePosixPath(file.member or file.location).parts[-2:]
    return "/".join([*folder, name.partition(".")[0]])


def _scored(corpus: Corpus, paths: Mapping[TextFile, Path], part: Path) -> list[TextReport]:
    """Write the splits that are scored, with every line, or scores would be of another set."""
    vocabulary = Vocabulary(part / VOCABULARY_FILE)
    report: list[TextReport] = []
    for split in ("valid", "test"):
        for text in corpus.splits.get(split, ()):
            directory = part / split
            directory.mkdir(exist_ok=True)
            sides = read_aligned(paths[text.source], paths[text.target])
            for name, lines in zip(("source.txt", "reference.txt"), sides, strict=True):
                (directory / name).write_text("".join(f"{x}\n" for x in lines), encoding="utf-8")
            source, target = map(vocabulary.encode, sides)
            write_store(directory, zip(source, target, strict=True), len(vocabulary))
            count = len(source)
            report.append(TextReport(split=split, text=_text_name(text), lines=count, kept=count))
    return report


def _sources_read(
    corpus: Corpus, contents: Sequence[str], paths: Mapping[TextFile, Path]
) -> list[tuple[str, str]]:
    """The name and SHA-256 of each file, computed after it was read."""
    sources: list[tuple[str, str]] = []
    for file, expected in zip(corpus.files, contents, strict=True):
        found = sha256_of(paths[file])
        if file.member is None and found != expected:
            raise InputError(f"{paths[file]} changed while it was read: start again")
        sources.append((file.name, found))
    return sources
