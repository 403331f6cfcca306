"""Make a directory that of a search, or add trials to the search there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from ablations.files import PLAN_FILE, SEARCH_FILE
from ablations.search.rungs import Pruner
from ablations.search.search import Sampler, Search, is_search, load_search
from ablations.tables.plan import same_arithmetic
from transformer.config import differences, to_dict
from transformer.errors import InputError
from transformer.files import write_json

_LOCK_FILE = ".search.lock"


def settle_search(
    directory: Path,
    search: Search,
    *,
    sampler: Sampler | None = None,
    pruner: Pruner | None = None,
) -> Search:
    """``search`` with the precision, threads, sampler and pruner of earlier trials in
    ``directory``, unless others are chosen.

    Raises:
        InputError: if the sampler cannot model the space.
    """
    found = load_search(directory) if is_search(directory) else None
    search = replace(
        search,
        base=same_arithmetic(search.base, found and found.base),
        sampler=sampler or (found or search).sampler,
        pruner=pruner or (found or search).pruner,
    )
    if search.sampler == "cmaes" and all(each.choices for each in search.parameters):
        raise InputError(
            f"space {search.space!r} has choices alone, and CMA-ES models numbers: take --sampler "
            "tpe or random"
        )
    return search


def claim_search(directory: Path, search: Search) -> Search:
    """Make ``directory`` that of the search, or add trials to the search there.

    Raises:
        InputError: if it belongs to another search or to a table; the message says what differs.
    """
    if (directory / PLAN_FILE).exists():
        raise InputError(f"{directory} belongs to a table: choose another --directory")
    directory.mkdir(parents=True, exist_ok=True)
    with FileLock(directory / _LOCK_FILE):
        found = load_search(directory) if is_search(directory) else None
        search = settle_search(directory, search, sampler=search.sampler, pruner=search.pruner)
        if found is not None:
            search = _extend(found, search, directory)
        if search != found:
            write_json(directory / SEARCH_FILE, to_dict(search))
    return search


def _extend(found: Search, search: Search, directory: Path) -> Search:
    changes = _differences(found, search)
    if changes:
        raise InputError(
            f"{directory} belongs to another search ({'; '.join(changes)}): "
            "choose another --directory, or remove this one"
        )
    trials = max(found.trials, search.trials)
    return replace(found, trials=trials, declared=found.declared or search.declared)


def _differences(found: Search, search: Search) -> list[str]:
    """How space and scale differ or, if they are the same, what else must not change."""
    before, after = (f"{each.space} at scale {each.scale}" for each in (found, search))
    return differences(before, after, "search") or differences(_identity(found), _identity(search))


def _identity(search: Search) -> dict[str, Any]:
    return {
        "base": to_dict(search.base),
        "parameters": {each.name: to_dict(each) for each in search.parameters},
        "max_parameters": search.max_parameters,
        "sampler": search.sampler,
        "pruner": search.pruner,
    }
