"""The built-in corpus ``cldr_en_de``: phrases in English and German from Unicode's locale data.

Babel and num2words write the same date, price, measure, list of names or number in both languages.
The corpus needs no download, is small enough for a model that learns it in minutes, and requires
what translation requires: names to be learned, words that change places (day and month, units and
tens), endings, compounds, and figures to be copied while their points and commas are exchanged.

Its limits: these are phrases, not sentences, nothing is ambiguous, each source has exactly one
target, and names that are held out on their own occur in lists of the training text. A model can
come close to a perfect score, which says nothing about translation in general.
"""

from __future__ import annotations

import pathlib
from importlib.metadata import version
from random import Random

from transformer.data.corpora import cldr_phrases as phrases
from transformer.data.corpora.cldr_phrases import Pair

SEED = 2020
PAIRS = 12_000
HELD_OUT = 1_000

#: Determines the bytes of the corpus. Change the seed whenever the phrases change.
VERSION: str = f"{SEED}-{version('babel')}-{version('num2words')}"

#: The weight with which each family is drawn, before duplicates are left out.
FAMILIES = {
    phrases.a_name: 2,
    phrases.names: 16,
    phrases.a_date: 9,
    phrases.a_time: 3,
    phrases.a_price: 8,
    phrases.measures: 12,
    phrases.counted: 14,
    phrases.a_number: 6,
}

_MOST_MISSES = 1_000


def pairs(seed: int, count: int) -> list[Pair]:
    """``count`` phrases in English and German.

    All sources are distinct and so are all targets, so any split is disjoint. A smaller ``count``
    gives a prefix of a larger one.

    Raises:
        ValueError: if there are fewer distinct phrases.
    """
    rng = Random(seed)
    families, weights = list(FAMILIES), list(FAMILIES.values())
    target_of: dict[str, str] = {}
    targets: set[str] = set()
    misses = 0
    while len(target_of) < count:
        (family,) = rng.choices(families, weights)
        source, target = map(_plain, family(rng))
        if source in target_of or target in targets:
            misses += 1
            if misses == _MOST_MISSES:
                raise ValueError(f"found only {len(target_of)} of {count} distinct pairs")
            continue
        misses = 0
        target_of[source] = target
        targets.add(target)
    return list(target_of.items())


def _plain(text: str) -> str:
    # CLDR uses narrow, thin and no-break spaces; all count as white space.
    return " ".join(text.split())


def write(directory: pathlib.Path) -> None:
    """Write ``train``, ``valid`` and ``test``, each with ``.en`` and ``.de``, into a directory."""
    drawn = pairs(SEED, PAIRS)
    # The smaller families are exhausted towards the end, so the held-out phrases come first.
    splits = {
        "valid": drawn[:HELD_OUT],
        "test": drawn[HELD_OUT : 2 * HELD_OUT],
        "train": drawn[2 * HELD_OUT :],
    }
    for split, held in splits.items():
        for language, lines in zip(("en", "de"), zip(*held, strict=True), strict=True):
            path = directory / f"{split}.{language}"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
