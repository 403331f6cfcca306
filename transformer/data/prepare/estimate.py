"""Downloads, disk space and time that a corpus will take."""

from __future__ import annotations

import os
import sys

from transformer.corpus import Corpus
from transformer.data.fetch.cache import cache_directory, check_space
from transformer.data.fetch.texts import is_here
from transformer.formats import duration, size

# Bytes per pair of news or parliament: the unpacked and the clean text, and the store.
_PAIR_BYTES = 740
# Smaller corpora take a minute at most.
_MANY_PAIRS = 100_000
# On two cores of 2.5 GHz: cleaned by one of them, encoded by each; for the vocabulary.
_CLEANED_PER_SECOND, _ENCODED_PER_SECOND, _VOCABULARY_SECONDS = 70_000, 9_000, 60


def announce(corpus: Corpus) -> None:
    """Print to standard error what a large corpus takes, and check that the disk has room."""
    pairs = corpus.pairs or 0
    if pairs < _MANY_PAIRS:
        return
    files = [file for file in corpus.files if file.is_download and not is_here(file)]
    lacking = {file.location: file.bytes or 0 for file in files}
    fetched = sum(lacking.values())
    needed = fetched + pairs * _PAIR_BYTES
    seconds = pairs / _CLEANED_PER_SECOND + _VOCABULARY_SECONDS
    seconds += pairs / (_ENCODED_PER_SECOND * (os.cpu_count() or 1))
    cache = cache_directory()
    print(
        f"{corpus.name}, about {pairs:,} pairs: {size(fetched)} to fetch from {len(lacking)} "
        f"addresses, about {size(needed)} of disk in {cache}, and then about {duration(seconds)}",
        file=sys.stderr,
        flush=True,
    )
    cache.mkdir(parents=True, exist_ok=True)
    check_space(cache, needed, corpus.name)
