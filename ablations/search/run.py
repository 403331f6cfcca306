"""One call of ``search``: from the words of the command line to a search, and its end."""

from __future__ import annotations

from ablations.search.sampler import check_feasible
from ablations.search.search import Search, make_search
from ablations.search.spaces import load_space
from ablations.tables.find import find_scale
from transformer.config import Precision


def prepare_search(
    space: str,
    scale: str,
    *,
    trials: int,
    seed: int = 1,
    precision: Precision | None = None,
    threads: int | None = None,
) -> Search:
    """The search that the user asks for.

    Raises:
        InputError: for anything that the user gave and that cannot be used.
    """
    declared = load_space(space)
    found = find_scale(declared, scale)
    search = make_search(
        declared, found, trials=trials, seed=seed, precision=precision, threads=threads
    )
    check_feasible(search)
    return search
