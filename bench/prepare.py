"""Time the preparation of a corpus against sentencepiece alone."""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import sentencepiece
import torch

from bench.common import Figures, add_output, report
from experiments.catalog.find import find_experiment
from experiments.devices import peak_memory
from transformer.config import Config, DataConfig, ModelConfig, override
from transformer.data.corpora.folders import folder_corpus
from transformer.data.fetch.cache import cache_directory
from transformer.data.fetch.texts import fetch
from transformer.data.prepare.prepare import prepare
from transformer.data.text import read_aligned
from transformer.data.vocabulary import SAMPLE_PAIRS
from transformer.errors import InputError

PARSER = argparse.ArgumentParser(description=__doc__)
PARSER.add_argument("name", help="an experiment, whose training text is multiplied")
PARSER.add_argument("--pairs", type=int, default=200_000, help="(default: %(default)s)")
add_output(PARSER)

_VALID_PAIRS = 100

Lines = Sequence[str]


def measure_preparation(source: Lines, target: Lines, pairs: int, vocab_size: int) -> Figures:
    """Prepare ``pairs`` pairs made of the given ones in both ways.

    The memory is the most that this process has held.
    """
    cache = cache_directory()
    with tempfile.TemporaryDirectory(dir=cache) as name:
        folder, cores = Path(name), os.cpu_count() or 1
        files = folder / "train.src", folder / "train.tgt"
        multiply(source, target, pairs, files)
        multiply(source, target, _VALID_PAIRS, (folder / "valid.src", folder / "valid.tgt"))
        os.environ["DATA_CACHE"] = name
        data = DataConfig(corpus=folder_corpus(folder, ("src", "tgt")))
        config = override(Config(data=data), vocab_size=vocab_size)
        start = time.perf_counter()
        prepare(config)
        seconds = time.perf_counter() - start
        memory = peak_memory(torch.device("cpu"))
        start = time.perf_counter()
        prepare_plainly(files, vocab_size, folder / "plain", cores)
        plain_seconds = time.perf_counter() - start
        return {
            "pairs": pairs,
            "cores": cores,
            "pairs_per_second": pairs / seconds,
            "plain_pairs_per_second": pairs / plain_seconds,
            "ratio": plain_seconds / seconds,
            "peak_memory_mib": memory and memory / 2**20,
        }


def multiply(source: Lines, target: Lines, pairs: int, files: tuple[Path, Path]) -> None:
    """Write ``pairs`` pairs by repeating the given ones.

    Each pair gets one new word, made of two words of the text, on one of its sides. So no two pairs
    are equal, and there are as many rare words as in a real text of that size; it is their number
    that makes a vocabulary costly.
    """
    for side, lines in enumerate((source, target)):
        random = Random(side)
        words = [word for line in lines for word in line.split()]
        with files[side].open("w", encoding="utf-8") as file:
            for number, line in enumerate(itertools.islice(itertools.cycle(lines), pairs)):
                old = line.split()
                if number % 2 == side:
                    # Several times as fast as random.choice.
                    one, other = (words[int(random.random() * len(words))] for _ in range(2))
                    old.insert(len(old) // 2, one + other.lower())
                file.write(" ".join(old) + "\n")


def prepare_plainly(files: Sequence[Path], vocab_size: int, output: Path, threads: int) -> None:
    """Learn a vocabulary and encode both sides, as sentencepiece does it by itself."""
    sentencepiece.SentencePieceTrainer.train(
        input=[str(file) for file in files],
        model_prefix=str(output),
        vocab_size=vocab_size,
        model_type="bpe",
        input_sentence_size=2 * SAMPLE_PAIRS,
        num_threads=threads,
        minloglevel=2,
    )
    encoder = sentencepiece.SentencePieceProcessor(model_file=f"{output}.model")
    for side, file in enumerate(files):
        lines = file.read_text(encoding="utf-8").splitlines()
        encoded = encoder.encode(lines, add_eos=True, num_threads=threads)
        np.save(f"{output}-{side}", np.fromiter(itertools.chain.from_iterable(encoded), np.uint16))
        np.save(f"{output}-{side}-lengths", np.array([len(ids) for ids in encoded], np.uint16))


def main() -> None:
    """Measure as asked and print the figures."""
    given = PARSER.parse_args()
    try:
        declared = find_experiment(given.name).config.data.corpus.train
        texts = [read_aligned(fetch(text.source), fetch(text.target)) for text in declared]
        source, target = ([line for text in texts for line in text[side]] for side in (0, 1))
        figures = measure_preparation(source, target, given.pairs, ModelConfig().vocab_size)
    except InputError as error:
        PARSER.error(str(error))
    report("prepare", figures, given.output, text=given.name)


if __name__ == "__main__":
    main()
