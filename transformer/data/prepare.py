"""From a declared corpus to a folder that training and evaluation read: fetch, clean, encode."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from transformer.config import Config
from transformer.data.cache import cache_directory
from transformer.data.checksum import sha256_of
from transformer.data.fetch import fetch_all
from transformer.data.store import TokenStore, write_store
from transformer.data.text import DROPPED, KEPT, aligned_lines, clean_pairs, read_text
from transformer.data.vocabulary import Vocabulary, train_vocabulary
from transformer.errors import InputError

# Counts up when the same settings would give another folder.
_FORMAT = 2
_ENCODE_AT_ONCE = 10_000
_TOO_LONG = "too long"
_REPORT_FILE = "report.json"
VOCABULARY_FILE = "vocabulary.model"

LocalText = tuple[Path, Path]


@dataclass(frozen=True, slots=True)
class PreparedCorpus:
    """A prepared folder: the vocabulary, each split's word-pieces, and the text to score."""

    directory: Path

    @property
    def vocabulary_file(self) -> Path:
        """The model of sentencepiece."""
        return self.directory / VOCABULARY_FILE

    def vocabulary(self) -> Vocabulary:
        """The trained vocabulary."""
        return Vocabulary(self.vocabulary_file)

    def has(self, split: str) -> bool:
        """Whether the corpus has this split."""
        return (self.directory / split).is_dir()

    def store(self, split: str) -> TokenStore:
        """The word-pieces of ``train``, ``valid`` or ``test``."""
        return TokenStore(self.directory / split)

    def text(self, split: str) -> tuple[list[str], list[str]]:
        """Source and reference lines of ``valid`` or ``test``."""
        directory = self.directory / split
        return read_text(directory / "source.txt"), read_text(directory / "reference.txt")

    def report(self) -> dict[str, dict[str, int]]:
        """By split: lines read, pairs kept, and pairs dropped by reason."""
        return json.loads((self.directory / _REPORT_FILE).read_text(encoding="utf-8"))


def prepare(config: Config) -> PreparedCorpus:
    """Prepare the corpus of ``config``, or find what an earlier run with the same data prepared.

    Raises:
        InputError: if a file cannot be had or used, or no pair is left.
    """
    corpus = config.data.corpus
    local = fetch_all(corpus)
    directory = cache_directory() / "prepared" / f"{corpus.name}-{_key(config, local)}"
    directory.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{directory}.lock"):
        if not directory.exists():
            temporary = directory.with_name(f"{directory.name}.part")
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            try:
                _write(config, local, temporary)
                temporary.replace(directory)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return PreparedCorpus(directory)


def _key(config: Config, local: dict[str, list[LocalText]]) -> str:
    """A short name for all that decides the contents of the folder."""
    checksums = [
        [declared.sha256 or sha256_of(path), declared.member]
        for name, texts in config.data.corpus.splits.items()
        for text, paths in zip(texts, local[name], strict=True)
        for declared, path in zip((text.source, text.target), paths, strict=True)
    ]
    shape = {name: len(texts) for name, texts in local.items()}
    parts = [_FORMAT, shape, checksums, config.model.vocab_size, config.data.max_length]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _write(config: Config, local: dict[str, list[LocalText]], directory: Path) -> None:
    size = config.model.vocab_size
    clean = directory / "clean.txt"
    counts = _write_clean(local["train"], clean)
    train_vocabulary(_lines(clean), size, directory / VOCABULARY_FILE)
    vocabulary = Vocabulary(directory / VOCABULARY_FILE)
    (directory / "train").mkdir()
    pairs = _encode(_lines(clean), vocabulary)
    short = (pair for pair in pairs if max(map(len, pair)) <= config.data.max_length)
    kept = write_store(directory / "train", short, size)
    clean.unlink()
    if kept == 0:
        raise InputError(f"{local['train'][0][0]}: every pair is longer than max_length")
    report = {
        "train": {
            "lines": counts.total(),
            KEPT: kept,
            **{reason: counts[reason] for reason in DROPPED},
            _TOO_LONG: counts[KEPT] - kept,
        }
    }
    for split in ("valid", "test"):
        if split in local:
            (directory / split).mkdir()
            lines = _write_scored(local[split][0], vocabulary, directory / split)
            report[split] = {"lines": lines, KEPT: lines}
    (directory / _REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _write_clean(texts: list[LocalText], path: Path) -> Counter[str]:
    """Write the usable pairs of all texts, source and target in turn; count every pair's fate."""
    counts: Counter[str] = Counter()
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for source, target in texts:
            for pair in clean_pairs(source, target, counts):
                file.write(f"{pair[0]}\n{pair[1]}\n")
    if counts[KEPT] == 0:
        source, target = texts[0]
        raise InputError(f"{source} and {target} hold no usable pair: the corpus is empty")
    return counts


def _write_scored(text: LocalText, vocabulary: Vocabulary, directory: Path) -> int:
    """Write a split that is scored: every line is kept, or the score would be of another set."""
    aligned = sum(1 for _ in aligned_lines(*text))
    if aligned == 0:
        raise InputError(f"{text[0]} and {text[1]} are empty")
    source, target = read_text(text[0]), read_text(text[1])
    for name, lines in (("source.txt", source), ("reference.txt", target)):
        (directory / name).write_text("".join(f"{x}\n" for x in lines), encoding="utf-8")
    interleaved = itertools.chain.from_iterable(zip(source, target, strict=True))
    write_store(directory, _encode(interleaved, vocabulary), len(vocabulary))
    return aligned


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n")


def _encode(lines: Iterator[str], vocabulary: Vocabulary) -> Iterator[tuple[list[int], list[int]]]:
    """The encoded pairs of lines in which source and target take turns."""
    while chunk := list(itertools.islice(lines, _ENCODE_AT_ONCE)):
        encoded = vocabulary.encode(chunk)
        yield from zip(encoded[0::2], encoded[1::2], strict=True)
