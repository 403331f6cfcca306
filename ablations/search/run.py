"""One call of ``search``: from the words of the command line to a search, and its end."""

from __future__ import annotations

from ablations.search.sampler import check_feasible
from ablations.search.search import Search, make_search
from ablations.search.spaces import load_space
from ablations.tables import find_scale


def prepare_search(space: str, scale: str, *, trials: int, seed: int = 1) -> Search:
    """The search that the user asks for.

    Raises:
        InputError: for anything that the user gave and that cannot be used.
    """
    declared = load_space(space)
    search = make_search(declared, find_scale(declared, scale), trials=trials, seed=seed)
    check_feasible(search)
    return search
