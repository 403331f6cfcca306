"""Downloads, disk space and time that a corpus will take."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from transformer.corpus import Corpus
from transformer.data.fetch.cache import cache_directory
from transformer.data.fetch.texts import is_here
from transformer.data.vocabulary import SAMPLE_PAIRS
from transformer.errors import InputError
from transformer.formats import duration, size

# Bytes per pair of news or parliament: the unpacked and the clean text, and the store.
_PAIR_BYTES = 740
# Smaller corpora take a minute at most.
_MANY_PAIRS = 100_000
# On two cores of 2.5 GHz: cleaned by one of them, encoded by each.
_CLEANED_PER_SECOND, _ENCODED_PER_SECOND = 70_000, 9_000
# For the vocabulary of SAMPLE_PAIRS pairs.
_VOCABULARY_SECONDS = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Downloads (of declared size), peak disk usage, and the time after everything is fetched."""

    addresses: int
    fetched_bytes: int
    disk_bytes: int
    seconds: float


def preparation_cost(corpora: Iterable[Corpus]) -> Cost | None:
    """The cost of preparing the large ones among ``corpora``; None if there is none.

    A corpus that declares no number of pairs counts as small.
    """
    large = {corpus for corpus in corpora if (corpus.pairs or 0) >= _MANY_PAIRS}
    if not large:
        return None
    pairs = sum(corpus.pairs or 0 for corpus in large)
    files = [file for corpus in large for file in corpus.files if file.is_download]
    lacking = {file.location: file.bytes or 0 for file in files if not is_here(file)}
    fetched = sum(lacking.values())
    return Cost(
        addresses=len(lacking),
        fetched_bytes=fetched,
        disk_bytes=fetched + pairs * _PAIR_BYTES,
        seconds=_VOCABULARY_SECONDS * min(1.0, pairs / SAMPLE_PAIRS)
        + pairs / _CLEANED_PER_SECOND
        + pairs / (_ENCODED_PER_SECOND * (os.cpu_count() or 1)),
    )


def announce(corpus: Corpus) -> None:
    """Print the cost of a large corpus to standard error, and check that the disk has room."""
    if (cost := preparation_cost([corpus])) is None:
        return
    cache = cache_directory()
    print(
        f"{corpus.name}, about {corpus.pairs:,} pairs: {size(cost.fetched_bytes)} to fetch from "
        f"{cost.addresses} addresses, about {size(cost.disk_bytes)} of disk in {cache}, "
        f"and then about {duration(cost.seconds)}",
        file=sys.stderr,
        flush=True,
    )
    cache.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(cache).free) < cost.disk_bytes:
        raise InputError(
            f"{corpus.name} needs {size(cost.disk_bytes)} in {cache}, where {size(free)} are free: "
            "make room, or set DATA_CACHE to another disk"
        )
