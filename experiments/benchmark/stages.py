"""The stages of preparing a text, in a process that holds nothing else: their time and memory."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from experiments.benchmark.memory import peak_memory_of_all
from experiments.run.files import read_json, write_json
from transformer.config import from_dict
from transformer.data.buckets import Buckets
from transformer.data.preparation.cleaning import clean
from transformer.data.preparation.encoding import Encoding, encode
from transformer.data.preparation.prepare import learn_vocabulary
from transformer.data.prepared import VOCABULARY_FILE
from transformer.data.store import TokenStore
from transformer.data.vocabulary import Vocabulary

_STAGES_FILE = "stages.json"
# Lines that sentencepiece encodes alone, before our encoding and after it.
PLAIN_PAIRS = 40_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Stages:
    """Seconds and peak bytes of each stage, and pairs a second of cleaning and encoding together.

    ``sentencepiece_pairs_per_second`` is of encoding whole lines, with nothing else, on as many
    threads as there are workers, before our encoding and after it.
    """

    pairs: int
    kept: int
    workers: int
    vocab_size: int
    seconds: dict[str, float]
    peak_bytes: dict[str, int | None]
    pairs_per_second: float
    sentencepiece_pairs_per_second: tuple[float, float]


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
        with peak_memory_of_all() as peak:
            yield
        seconds[name], peaks[name] = time.perf_counter() - start, peak.bytes

    work, train, vocabulary = folder / "work", folder / "train", folder / VOCABULARY_FILE
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    texts = [(folder / "text.source", folder / "text.target")]
    with stage("clean"):
        text = clean(texts, work, with_hashes=False, workers=workers)
    with stage("vocabulary"):
        learn_vocabulary(text, vocab_size, vocabulary)
    sample = list(text.sample(PLAIN_PAIRS))
    before = _sentencepiece_speed(vocabulary, sample, workers)
    encoding = Encoding(vocabulary=vocabulary, max_length=256, max_length_ratio=None)
    with stage("encode"):
        fates = encode(text, encoding, train, work, workers=workers)
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


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    write_json(folder / _STAGES_FILE, asdict(_prepare(folder, *map(int, sys.argv[2:]))))
