"""The names of files and folders in the directory of a table, a search or measured layers."""

from __future__ import annotations

import re

from transformer.errors import InputError

PLAN_FILE = "table.json"
SEARCH_FILE = "search.json"
LAYERS_FILE = "layers.json"
MARKDOWN_FILE = "report.md"
HTML_FILE = "report.html"
LATEX_FILE = "table.tex"
CSV_FILE = "results.csv"
FIGURES = "figures"
STUDY_FILE = "study.sqlite3"
STORAGE_FILE = "fleet.json"
# All files in a table's directory, next to the folders of its rows.
OWN_FILES = (
    PLAN_FILE,
    MARKDOWN_FILE,
    HTML_FILE,
    LATEX_FILE,
    CSV_FILE,
    FIGURES,
    STORAGE_FILE,
    *(STUDY_FILE + suffix for suffix in ("", "-journal", "-shm", "-wal")),
    "wandb",
)
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def trial_name(number: int) -> str:
    """A search's trial, which is also its folder."""
    return f"trial-{number:04}"


def check_name(kind: str, name: str) -> None:
    """Check that the name of a table, space, scale or row can be that of a folder.

    Raises:
        InputError: if it contains anything but letters, digits, '.', '_' and '-'.
    """
    if not _FOLDER.fullmatch(name):
        raise InputError(f"{kind} name {name!r} may contain only letters, digits, '.', '_' and '-'")
