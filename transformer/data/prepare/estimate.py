"""Downloads, disk space and time that a corpus will take."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from transformer.corpus import Corpus
from transformer.data.fetch.cache import cache_directory, check_space
from transformer.data.fetch.texts import missing
from transformer.data.vocabulary import SAMPLE_PAIRS
from transformer.formats import duration, size

# Bytes per pair of news or parliament: both lines of text, and everything in the store.
_TEXT_BYTES, _STORE_BYTES = 300, 140
# Smaller corpora take a minute at most.
_MANY_PAIRS = 100_000
# Cleaned and encoded per core, by `experiments benchmark-prepare` on two cores of 2.5 GHz.
_PAIRS_PER_SECOND = 20_000
# For the vocabulary of SAMPLE_PAIRS pairs.
_VOCABULARY_SECONDS = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Downloads (of declared size), peak disk usage, and the time after everything is fetched."""

    addresses: int
    fetched_bytes: int
    disk_bytes: int
    seconds: float


def preparation_cost(corpora: Iterable[Corpus], workers: int) -> Cost | None:
    """The cost of preparing the large ones among ``corpora``; None if there is none.

    A corpus that declares no number of pairs counts as small.
    """
    large = {corpus for corpus in corpora if (corpus.pairs or 0) >= _MANY_PAIRS}
    if not large:
        return None
    pairs = sum(corpus.pairs or 0 for corpus in large)
    lacking = missing([file for corpus in large for file in corpus.files])
    fetched = sum(count or 0 for count in lacking.values())
    # The unpacked text, the clean text and the store.
    per_pair = 2 * _TEXT_BYTES + _STORE_BYTES
    return Cost(
        addresses=len(lacking),
        fetched_bytes=fetched,
        disk_bytes=fetched + pairs * per_pair,
        seconds=_VOCABULARY_SECONDS * min(1.0, pairs / SAMPLE_PAIRS)
        + pairs / (_PAIRS_PER_SECOND * workers),
    )


def announce(corpus: Corpus, workers: int) -> None:
    """Print the cost of a large corpus to standard error, and check that the disk has room."""
    cost = preparation_cost([corpus], workers)
    if cost is None:
        return
    cache = cache_directory()
    addresses = f"{cost.addresses} address{'es' if cost.addresses > 1 else ''}"
    fetched = f"{size(cost.fetched_bytes)} to fetch from {addresses}"
    print(
        f"{corpus.name}, about {corpus.pairs:,} pairs: "
        f"{fetched if cost.addresses else 'nothing to fetch'}, "
        f"about {size(cost.disk_bytes)} of disk in {cache}, "
        f"and then about {duration(cost.seconds)} on {workers} cores",
        file=sys.stderr,
        flush=True,
    )
    cache.mkdir(parents=True, exist_ok=True)
    check_space(cache / corpus.name, cost.disk_bytes, corpus.name)
