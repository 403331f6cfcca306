"""Time the preparation of a corpus of any size."""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import torch

from bench import end_in_one_line
from bench.common import Numbers, lines_of
from experiments.catalog.find import find_experiment
from experiments.devices import peak_memory
from transformer.config import Config, DataConfig, ModelConfig, override
from transformer.data.corpora.folders import folder_corpus
from transformer.data.fetch.cache import cache_directory
from transformer.data.fetch.texts import fetch
from transformer.data.prepare.prepare import prepare
from transformer.data.text import read_aligned

PARSER = argparse.ArgumentParser(description=__doc__)
PARSER.add_argument("name", help="an experiment, whose training text is multiplied")
PARSER.add_argument(
    "--pairs", type=int, default=200_000, help="number of pairs (default: %(default)s)"
)

_VALID_PAIRS = 100

Lines = Sequence[str]


def measure_preparation(source: Lines, target: Lines, pairs: int, vocab_size: int) -> Numbers:
    """Prepare ``pairs`` pairs made of the given ones.

    The memory is the most that this process has held.
    """
    with tempfile.TemporaryDirectory(dir=cache_directory()) as name:
        folder = Path(name)
        multiply(source, target, pairs, (folder / "train.src", folder / "train.tgt"))
        multiply(source, target, _VALID_PAIRS, (folder / "valid.src", folder / "valid.tgt"))
        os.environ["DATA_CACHE"] = name
        data = DataConfig(corpus=folder_corpus(folder, ("src", "tgt")))
        config = override(Config(data=data), vocab_size=vocab_size)
        start = time.perf_counter()
        prepare(config)
        seconds = time.perf_counter() - start
        memory = peak_memory(torch.device("cpu"))
        return {
            "pairs": pairs,
            "pairs_per_second": pairs / seconds,
            "peak_memory_mib": memory / 2**20,
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


def main() -> None:
    """Measure with the given options, and print the numbers."""
    given = PARSER.parse_args()
    declared = find_experiment(given.name).config.data.corpus.train
    texts = [read_aligned(fetch(text.source), fetch(text.target)) for text in declared]
    source, target = ([line for text in texts for line in text[side]] for side in (0, 1))
    numbers = measure_preparation(source, target, given.pairs, ModelConfig().vocab_size)
    print("\n".join(lines_of(numbers)))


if __name__ == "__main__":
    end_in_one_line(main)
