"""Which pairs have stood in the corpus before, found in little memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

# Pairs that are compared at a time: those whose hashes leave the same remainder.
_AT_ONCE = 2**21
_READ = 2**20


def find_duplicates(hashes: Path) -> npt.NDArray[np.bool_]:
    """Which pairs equal an earlier one, by their hashes of 64 bits.

    Among 36 million pairs two different ones are taken for equal with a probability of 4e-5.
    """
    values = np.fromfile(hashes, dtype=np.uint64, count=0)
    if hashes.stat().st_size:
        values = np.memmap(hashes, dtype=np.uint64, mode="r")
    duplicates = np.zeros(len(values), dtype=np.bool_)
    groups = -(-len(values) // _AT_ONCE)
    for group in range(groups):
        places = np.concatenate(
            [
                start + np.flatnonzero(values[start : start + _READ] % np.uint64(groups) == group)
                for start in range(0, len(values), _READ)
            ]
        )
        _, first = np.unique(values[places], return_index=True)
        duplicates[places] = True
        duplicates[places[first]] = False
    return duplicates
