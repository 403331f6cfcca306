"""Preparing a corpus of any size: time, memory, and how soon the first batch is there."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from experiments.benchmark.multiplied import multiply
from experiments.benchmark.stages import PLAIN_PAIRS, Stages, measure_stages
from experiments.catalog.find import find_experiment
from experiments.run.devices import device_name
from experiments.run.files import write_json
from experiments.run.provenance import commit, versions
from transformer.config import ModelConfig
from transformer.data.batches import BatchPlan, collate
from transformer.data.buckets import Buckets
from transformer.data.fetching.cache import cache_directory
from transformer.data.fetching.fetch import fetch
from transformer.data.fetching.space import check_space
from transformer.data.preparation.workers import default_workers
from transformer.data.store import TokenStore
from transformer.data.text import read_aligned
from transformer.errors import InputError
from transformer.formats import duration, size
from transformer.progress import show_activity

_BATCHES = 200
_TOKENS_PER_BATCH = 25_000
# The text, clean, and encoded.
_PAIR_BYTES = 800


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """Seconds until a prepared corpus is open, and until the first batch of training is there,
    when nothing of it is in memory and when it is; and a batch after.
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
    if pairs < PLAIN_PAIRS:
        raise InputError(f"--pairs is {pairs}, but must be at least {PLAIN_PAIRS:,}")
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


def measure_opening(directory: Path, tokens_per_batch: int) -> Opening:
    """Open the store in ``directory`` and make batches of it."""

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
    """Let the system drop the files from its memory, where it can be asked to."""
    if hasattr(os, "posix_fadvise"):
        for path in directory.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
