"""What there is to do in a fleet's directory, or by the object that its study holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations.files import PLAN_FILE, SEARCH_FILE, trial_name
from ablations.tables.plan import Plan, load_plan
from experiments.run.files import read_json
from transformer.config import Config, from_dict
from transformer.errors import InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """All cells by name, each with its configuration; None where it is still to be sampled."""

    title: str
    cells: Mapping[str, Config | None]


def read_contents(directory: Path) -> Contents:
    """Of a table's or a search's directory.

    Raises:
        InputError: if it is neither.
    """
    search = directory / SEARCH_FILE
    if search.is_file():
        return _of_search(read_json(search), str(search))
    return _of_plan(load_plan(directory))


def contents_of(described: Mapping[str, Any], where: str) -> Contents:
    """Of what ``table.json`` or ``search.json`` holds.

    Raises:
        InputError: if it is of another version of the project.
    """
    if "trials" in described:
        return _of_search(described, where)
    return _of_plan(from_dict(Plan, dict(described), where))


def is_claimed(directory: Path) -> bool:
    """Whether a directory is a table's or a search's."""
    return (directory / PLAN_FILE).is_file() or (directory / SEARCH_FILE).is_file()


def _of_plan(plan: Plan) -> Contents:
    configs = plan.configs
    return Contents(
        title=f"{plan.table} at scale {plan.scale}",
        cells={str(cell): configs[cell.row] for cell in plan.cells},
    )


def _of_search(described: Mapping[str, Any], where: str) -> Contents:
    try:
        title = f"search {described['space']} at scale {described['scale']}"
        trials = int(described["trials"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where} does not fit this version of the project: {error}") from error
    return Contents(title=title, cells={trial_name(number): None for number in range(trials)})
