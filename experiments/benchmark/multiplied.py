"""A text as long as one likes, made of a short one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

_SEED = 1

Halves = tuple[str, str]


def multiply(source: Sequence[str], target: Sequence[str], pairs: int, folder: Path) -> None:
    """Write ``pairs`` pairs into ``text.source`` and ``text.target``, the given ones over and over.

    Each gets one new word, two of the text's joined, on one of its sides: so no two pairs are
    alike, and there are as many rare words as a text of that size has, which repetition alone
    would not give (it is their number that makes a vocabulary and a memory of words costly).
    """
    random = Random(_SEED)
    sides = [[_halves(line) for line in lines] for lines in (source, target)]
    words = [[word for line in lines for word in line.split()] for lines in (source, target)]
    with (
        (folder / "text.source").open("w", encoding="utf-8", newline="\n") as first,
        (folder / "text.target").open("w", encoding="utf-8", newline="\n") as second,
    ):
        for number, pair in enumerate(_repeated(sides, pairs)):
            new = _any(random, words[0]) + _any(random, words[1]).lower()
            changed = number % 2
            for side, (file, (head, tail)) in enumerate(zip((first, second), pair, strict=True)):
                file.write(f"{head} {new} {tail}\n" if side == changed else f"{head} {tail}\n")


def _repeated(sides: Sequence[Sequence[Halves]], pairs: int) -> Iterator[tuple[Halves, Halves]]:
    return itertools.islice(itertools.cycle(zip(sides[0], sides[1], strict=True)), pairs)


def _halves(line: str) -> Halves:
    words = line.split()
    middle = len(words) // 2
    return " ".join(words[:middle]), " ".join(words[middle:])


def _any(random: Random, words: Sequence[str]) -> str:
    return words[int(random.random() * len(words))]  # several times as fast as random.choice
