"""What preparing a corpus will cost, told before it is begun."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from transformer.corpus import Corpus
from transformer.data.fetching.cache import cache_directory
from transformer.data.fetching.fetch import missing
from transformer.data.fetching.space import check_space
from transformer.data.vocabulary import SAMPLE_PAIRS
from transformer.formats import duration, size

# Of news and parliament: both lines as text, and as a store with its lengths, starts and order.
_TEXT_BYTES, _STORE_BYTES = 300, 140
# Of fewer nothing need be said.
_MANY_PAIRS = 100_000
# Cleaned and encoded by one core, by `experiments benchmark-prepare` on two of 2.5 GHz.
_PAIRS_PER_SECOND = 20_000
# To learn the vocabulary of a million pairs, of which it is learned at most.
_VOCABULARY_SECONDS = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What is to be fetched, as far as its size is declared, what all needs on the disk while it
    is prepared, and how long it takes once it is fetched.
    """

    addresses: int
    fetched_bytes: int
    disk_bytes: int
    seconds: float


def cost(corpus: Corpus, workers: int) -> Cost | None:
    """The cost of a corpus that says about how many pairs it has, if they are many."""
    if corpus.pairs is None or corpus.pairs < _MANY_PAIRS:
        return None
    lacking = missing(corpus)
    fetched = sum(count or 0 for _, count in lacking)
    # The text unpacked, and cleaned; then the store.
    per_pair = 2 * _TEXT_BYTES + _STORE_BYTES
    return Cost(
        addresses=len(lacking),
        fetched_bytes=fetched,
        disk_bytes=fetched + corpus.pairs * per_pair,
        seconds=_VOCABULARY_SECONDS * min(1.0, corpus.pairs / SAMPLE_PAIRS)
        + corpus.pairs / (_PAIRS_PER_SECOND * workers),
    )


def announce(corpus: Corpus, workers: int) -> None:
    """Tell the cost of a corpus of many pairs on standard error.

    Raises:
        InputError: if the disk has no room for it.
    """
    expected = cost(corpus, workers)
    if expected is None:
        return
    cache = cache_directory()
    fetched = (
        f"{size(expected.fetched_bytes)} to fetch from {expected.addresses} "
        f"address{'es' if expected.addresses > 1 else ''}"
        if expected.addresses
        else "nothing to fetch"
    )
    print(
        f"{corpus.name}, about {corpus.pairs:,} pairs: {fetched}, "
        f"about {size(expected.disk_bytes)} of disk in {cache}, "
        f"and then about {duration(expected.seconds)} on {workers} cores",
        file=sys.stderr,
        flush=True,
    )
    cache.mkdir(parents=True, exist_ok=True)
    check_space(cache / corpus.name, expected.disk_bytes, corpus.name)
