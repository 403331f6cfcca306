"""Preparing a corpus of any size: time and memory of each stage, and how soon training can start.

torch is imported late: the stages are measured in a process of their own that does without it.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from experiments.benchmark.memory import watch_peak_memory
from experiments.catalog.find import find_experiment
from experiments.run.devices import device_name
from experiments.run.provenance import commit, versions
from transformer.config import ModelConfig, from_dict
from transformer.data.buckets import Buckets
from transformer.data.fetch.cache import cache_directory, check_space
from transformer.data.fetch.texts import fetch
from transformer.data.prepare.clean import clean
from transformer.data.prepare.encode import Encoding, encode
from transformer.data.prepare.parallel import default_workers
from transformer.data.prepare.prepare import learn_vocabulary
from transformer.data.prepared import VOCABULARY_FILE
from transformer.data.store import TokenStore
from transformer.data.text import read_aligned
from transformer.data.vocabulary import Vocabulary
from transformer.errors import InputError
from transformer.files import read_json, write_json
from transformer.formats import duration, size
from transformer.progress import show_activity

_BATCHES = 200
_TOKENS_PER_BATCH = 25_000
# The text, clean, and encoded.
_PAIR_BYTES = 800
# Lines that sentencepiece encodes alone, before our encoding and after it.
_PLAIN_PAIRS = 40_000
_STAGES_FILE = "stages.json"
_SEED = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Stages:
    """Seconds and peak bytes of each stage; pairs per second of cleaning, encoding and ordering.

    ``sentencepiece_pairs_per_second`` is the speed of sentencepiece alone, with a thread for each
    worker, before our encoding and after it.
    """

    pairs: int
    kept: int
    workers: int
    vocab_size: int
    seconds: dict[str, float]
    peak_bytes: dict[str, int | None]
    pairs_per_second: float
    sentencepiece_pairs_per_second: tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """Seconds to open a prepared corpus, until its first batch (with cold and with warm caches of
    the system), and per batch after that.
    """

    tokens_per_batch: int
    open_seconds: float
    first_batch_cold_seconds: float
    first_batch_seconds: float
    seconds_per_batch: float


def measure_preparation(name: str, pairs: int, output: Path) -> None:
    """Prepare ``pairs`` pairs, made of the training text of an experiment, and write the figures.

    Raises:
        InputError: if there is no such experiment, its text cannot be had, or the disk has no room.
    """
    if pairs < _PLAIN_PAIRS:
        raise InputError(f"--pairs is {pairs}, but must be at least {_PLAIN_PAIRS:,}")
    declared = find_experiment(name).config.data.corpus.train
    texts = [read_aligned(fetch(text.source), fetch(text.target)) for text in declared]
    source, target = ([line for text in texts for line in text[side]] for side in (0, 1))
    workers, vocab_size = default_workers(), ModelConfig().vocab_size
    print(
        f"{pairs:,} pairs made of {len(source):,} of {name}, {vocab_size:,} word-pieces", flush=True
    )
    folder = cache_directory() / "benchmark"
    check_space(folder, pairs * _PAIR_BYTES, "the benchmark")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        with show_activity("multiplying the text"):
            multiply(source, target, pairs, folder)
        stages = measure_stages(folder, vocab_size, workers)
        opening = measure_opening(folder / "train", _TOKENS_PER_BATCH)
    finally:
        shutil.rmtree(folder)
    for line in _lines(stages, opening):
        print(line)
    output.parent.mkdir(parents=True, exist_ok=True)
    about = {"text": name, "cores": workers, "device": device_name()}
    made = {"commit": commit(), "versions": versions()}
    write_json(output, about | asdict(stages) | asdict(opening) | made)
    print(output)


def _lines(stages: Stages, opening: Opening) -> Iterator[str]:
    for name, seconds in stages.seconds.items():
        peak = stages.peak_bytes[name]
        yield f"{name:12} {duration(seconds):>8}  {'' if peak is None else size(peak)}"
    alone = sum(stages.sentencepiece_pairs_per_second) / 2
    ours = stages.pairs_per_second
    yield f"clean, encode and order: {ours:,.0f} pairs/s on {stages.workers} cores"
    yield f"sentencepiece alone:     {alone:,.0f} pairs/s, ours {ours / alone:.2f} times as fast"
    yield f"to open {stages.kept:,} pairs: {1e3 * opening.open_seconds:.0f} ms"
    cold, warm = opening.first_batch_cold_seconds, opening.first_batch_seconds
    yield f"first batch: {cold:.2f} s, and {warm:.2f} s when it is in memory"
    tokens = opening.tokens_per_batch
    yield f"a batch of {tokens:,} + {tokens:,} tokens: {1e3 * opening.seconds_per_batch:.2f} ms"


def multiply(source: Sequence[str], target: Sequence[str], pairs: int, folder: Path) -> None:
    """Write ``pairs`` pairs into ``text.source`` and ``text.target`` by repeating the given ones.

    Each pair gets one new word, made of two words of the text, on one of its sides. So no two pairs
    are equal, and there are as many rare words as in a real text of that size; it is their number
    that makes a vocabulary costly.
    """
    random = Random(_SEED)
    sides = [[_halves(line) for line in lines] for lines in (source, target)]
    words = [[word for line in lines for word in line.split()] for lines in (source, target)]
    repeated = itertools.islice(itertools.cycle(zip(*sides, strict=True)), pairs)

    def any_of(words: Sequence[str]) -> str:
        return words[int(random.random() * len(words))]  # several times as fast as random.choice

    with (
        (folder / "text.source").open("w", encoding="utf-8", newline="\n") as first,
        (folder / "text.target").open("w", encoding="utf-8", newline="\n") as second,
    ):
        for number, pair in enumerate(repeated):
            new = any_of(words[0]) + any_of(words[1]).lower()
            changed = number % 2
            for side, (file, (head, tail)) in enumerate(zip((first, second), pair, strict=True)):
                file.write(f"{head} {new} {tail}\n" if side == changed else f"{head} {tail}\n")


def _halves(line: str) -> tuple[str, str]:
    words = line.split()
    middle = len(words) // 2
    return " ".join(words[:middle]), " ".join(words[middle:])


def measure_stages(folder: Path, vocab_size: int, workers: int) -> Stages:
    """Prepare ``text.source`` and ``text.target`` of ``folder`` in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, str(folder), str(vocab_size), str(workers)]
    subprocess.run(command, check=True)
    return from_dict(Stages, read_json(folder / _STAGES_FILE))


def _prepare(folder: Path, vocab_size: int, workers: int) -> Stages:
    seconds: dict[str, float] = {}
    peaks: dict[str, int | None] = {}

    @contextmanager
    def stage(name: str) -> Generator[None]:
        start = time.perf_counter()
        with watch_peak_memory() as peak:
            yield
        seconds[name], peaks[name] = time.perf_counter() - start, peak.bytes

    work, train, vocabulary = folder / "work", folder / "train", folder / VOCABULARY_FILE
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    texts = [(folder / "text.source", folder / "text.target")]
    with stage("clean"):
        text = clean(texts, work / "clean", workers=workers)
    with stage("vocabulary"):
        learn_vocabulary(text, vocab_size, vocabulary)
    sample = list(text.sample(_PLAIN_PAIRS))
    before = _sentencepiece_speed(vocabulary, sample, workers)
    encoding = Encoding(vocabulary=vocabulary, max_length=256, max_length_ratio=None)
    with stage("encode"):
        fates = encode(text, encoding, train, workers=workers)
    with stage("order"):
        Buckets.of(TokenStore(train).lengths).save(train)
    after = _sentencepiece_speed(vocabulary, sample, workers)
    return Stages(
        pairs=text.pairs,
        kept=sum(fate["kept"] for fate in fates),
        workers=workers,
        vocab_size=vocab_size,
        seconds=seconds,
        peak_bytes=peaks,
        pairs_per_second=text.pairs / (seconds["clean"] + seconds["encode"] + seconds["order"]),
        sentencepiece_pairs_per_second=(before, after),
    )


def _sentencepiece_speed(path: Path, lines: list[str], threads: int) -> float:
    vocabulary = Vocabulary(path)
    start = time.perf_counter()
    vocabulary.encode(lines, threads=threads)
    return len(lines) / 2 / (time.perf_counter() - start)


def measure_opening(directory: Path, tokens_per_batch: int) -> Opening:
    """Open the store in ``directory`` and make batches of it."""
    from transformer.data.batches import BatchPlan, collate

    def first() -> tuple[float, float, Callable[[int], object]]:
        start = time.perf_counter()
        store, buckets = TokenStore(directory), Buckets.load(directory)
        opened = time.perf_counter() - start
        plan = BatchPlan(buckets, tokens_per_batch, seed=1)
        collate(store, plan.batch(0))
        return opened, time.perf_counter() - start, lambda n: collate(store, plan.batch(n))

    _forget(directory)
    _, cold, _ = first()
    opened, warm, make = first()
    start = time.perf_counter()
    for number in range(1, 1 + _BATCHES):
        make(number)
    return Opening(
        tokens_per_batch=tokens_per_batch,
        open_seconds=opened,
        first_batch_cold_seconds=cold,
        first_batch_seconds=warm,
        seconds_per_batch=(time.perf_counter() - start) / _BATCHES,
    )


def _forget(directory: Path) -> None:
    """Ask the system to drop the files from its cache, where that is possible."""
    if hasattr(os, "posix_fadvise"):
        for path in directory.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    write_json(folder / _STAGES_FILE, asdict(_prepare(folder, *map(int, sys.argv[2:]))))
