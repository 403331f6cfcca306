"""From a declared corpus to a prepared folder: fetch, clean, learn the vocabulary, encode."""

from __future__ import annotations

import errno
import json
import shutil
from collections import Counter
from functools import partial
from pathlib import Path, PurePosixPath

from transformer.config import Config, to_dict
from transformer.corpus import Corpus, ParallelText
from transformer.data.buckets import Buckets
from transformer.data.fetching.cache import cache_directory, exclusive
from transformer.data.fetching.fetch import fetch_all
from transformer.data.fetching.testsets import split_location
from transformer.data.preparation.cleaning import KEPT, CleanText, LocalText, clean
from transformer.data.preparation.encoding import Encoding, encode
from transformer.data.preparation.estimate import announce
from transformer.data.preparation.integrity import (
    changed_sources,
    prepared_directory,
    source_contents,
    sources_read,
    with_names,
)
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
    write_manifest,
)
from transformer.data.store import TokenStore, write_store
from transformer.data.text import read_aligned
from transformer.data.vocabulary import SAMPLE_PAIRS, Vocabulary, train_vocabulary
from transformer.errors import InputError
from transformer.progress import show_activity

# Learning the vocabulary of more pairs takes so long that one may want to interrupt it.
_LONG_TEXT = 100_000


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
                announce(corpus, workers)
            local = fetch_all(corpus)
            for folder in (work, part):
                folder.mkdir(exist_ok=True)
            try:
                _write(config, local, part, work, workers)
                sources = sources_read(corpus, contents, local)
                write_manifest(part / MANIFEST_FILE, make_manifest(part, sources))
            except InputError:
                shutil.rmtree(part)
                shutil.rmtree(work)
                raise
            except OSError as error:
                raise _with_advice(error) from error
            part.replace(directory)
        shutil.rmtree(work, ignore_errors=True)
    if damaged := damaged_files(directory, whole=False):
        raise InputError(
            f"{directory} is damaged: {', '.join(damaged)} changed since it was prepared; "
            "remove the folder and start again, which prepares it again"
        )
    manifest = with_names(corpus, read_manifest(directory / MANIFEST_FILE))
    if expected is not None:
        expected.require(manifest)
    return PreparedCorpus(directory, manifest)


def _with_advice(error: OSError) -> OSError:
    """The error with what to do about it if the disk is full, else unchanged."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return error
    reason = (
        f"{error.strerror} ({cache_directory()}): make room and start again, which goes on where "
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
        learn_vocabulary(text, config.model.vocab_size, work / VOCABULARY_FILE)
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
        _text_report(data.corpus, text, number, fates) for number in range(len(data.corpus.train))
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
            name = text_name(data.corpus.splits[split][0])
            report.append(TextReport(split=split, text=name, lines=lines, kept=lines))
    entries = [to_dict(entry) for entry in report]
    (part / REPORT_FILE).write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")


def learn_vocabulary(text: CleanText, size: int, path: Path) -> None:
    """Learn the vocabulary from a sample of ``text``, in a separate process if it is long.

    Raises:
        InputError: if the text does not allow so many word-pieces, or needs more.
    """
    learn = partial(_learn, text, size)
    if text.pairs < _LONG_TEXT:
        learn(path)
        return
    pairs = min(text.pairs, SAMPLE_PAIRS)
    with show_activity(f"learning {size:,} word-pieces from {pairs:,} pairs"):
        in_subprocess(learn, path)


def _learn(text: CleanText, size: int, path: Path) -> None:
    train_vocabulary(text.sample(SAMPLE_PAIRS), size, path)


def _text_report(
    corpus: Corpus, text: CleanText, number: int, fates: list[Counter[str]]
) -> TextReport:
    read: Counter[str] = Counter()
    encoded: Counter[str] = Counter()
    for chunk, fate in zip(text.chunks, fates, strict=True):
        if chunk.text == number:
            read += chunk.fates
            encoded += fate
    dropped = {k: v for k, v in (read + encoded).items() if k != KEPT}
    return TextReport(
        split="train",
        text=text_name(corpus.train[number]),
        lines=read.total(),
        kept=encoded[KEPT],
        dropped=dict(sorted(dropped.items())),
    )


def text_name(text: ParallelText) -> str:
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
