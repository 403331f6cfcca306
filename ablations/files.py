"""Names of files in the directories of tables and searches."""

from __future__ import annotations

import re
from pathlib import Path

from transformer.errors import InputError

PLAN_FILE = "table.json"
SEARCH_FILE = "search.json"
LAYERS_FILE = "layers.json"
MARKDOWN_FILE = "report.md"
HTML_FILE = "report.html"
LATEX_FILE = "table.tex"
CSV_FILE = "results.csv"
FIGURES = "figures"
# Of a search: the directory of the table that trains its best trials again.
CONFIRM = "confirm"
# Optuna's journal of the trials, which optuna-dashboard reads.
STUDY_FILE = "study.log"
_FOLDERS = (FIGURES, "wandb")
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def trial_name(number: int) -> str:
    """A search's trial, which is also its folder."""
    return f"trial-{number:04}"


def check_name(kind: str, name: str) -> None:
    """Check that the name of a table, space, scale or row can be that of a folder."""
    if not _FOLDER.fullmatch(name):
        raise InputError(
            f"{kind} name {name!r} may contain only letters, digits, '.', '_' and '-', 100 in all"
        )


def check_row_name(name: str) -> None:
    """Check that a row's folder cannot be in the place of a table's own files."""
    check_name("row", name)
    if name.lower() in _FOLDERS or Path(name).suffix[1:2].isalpha():
        raise InputError(
            f"row name {name!r} could be that of a file of the table: choose one without an ending "
            f"such as .txt, other than {' and '.join(_FOLDERS)}"
        )
