"""What preparing a corpus will take: downloads, disk space and time."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass

from transformer.data.fetching.cache import cache_directory, check_space
from transformer.data.vocabulary import SAMPLE_PAIRS
from transformer.formats import duration, size

# Bytes per pair of news or parliament: both lines of text, and everything in the store.
_TEXT_BYTES, _STORE_BYTES = 300, 140
# Smaller corpora are not announced.
MANY_PAIRS = 100_000
# Cleaned and encoded per core, see docs/figures.md.
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


def cost(pairs: int, lacking: Collection[tuple[str, int | None]], workers: int) -> Cost:
    """The cost of preparing ``pairs``, with the addresses and bytes that are yet to be fetched."""
    fetched = sum(count or 0 for _, count in lacking)
    # The unpacked text, the clean text and the store.
    per_pair = 2 * _TEXT_BYTES + _STORE_BYTES
    return Cost(
        addresses=len(lacking),
        fetched_bytes=fetched,
        disk_bytes=fetched + pairs * per_pair,
        seconds=_VOCABULARY_SECONDS * min(1.0, pairs / SAMPLE_PAIRS)
        + pairs / (_PAIRS_PER_SECOND * workers),
    )


def announce(
    name: str, pairs: int | None, lacking: Collection[tuple[str, int | None]], workers: int
) -> None:
    """Print the cost of a corpus that declares many ``pairs`` to standard error.

    Raises:
        InputError: if there is not enough disk space.
    """
    if pairs is None or pairs < MANY_PAIRS:
        return
    expected = cost(pairs, lacking, workers)
    cache = cache_directory()
    fetched = (
        f"{size(expected.fetched_bytes)} to fetch from {expected.addresses} "
        f"address{'es' if expected.addresses > 1 else ''}"
        if expected.addresses
        else "nothing to fetch"
    )
    print(
        f"{name}, about {pairs:,} pairs: {fetched}, "
        f"about {size(expected.disk_bytes)} of disk in {cache}, "
        f"and then about {duration(expected.seconds)} on {workers} cores",
        file=sys.stderr,
        flush=True,
    )
    cache.mkdir(parents=True, exist_ok=True)
    check_space(cache / name, expected.disk_bytes, name)
