"""Names of files in the directories of tables and searches."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from experiments.records.experiment import CONFIG_FILE
from transformer.errors import InputError

PLAN_FILE = "table.json"
SEARCH_FILE = "search.json"
LAYERS_FILE = "layers.json"
MARKDOWN_FILE = "report.md"
HTML_FILE = "report.html"
LATEX_FILE = "table.tex"
CSV_FILE = "results.csv"
STEP_TIMES_FILE = "step-times.json"
FIGURES = "figures"
CONFIRM = "confirm"  # the table in a search's directory that trains its best trials again
TUNING = "tuning"  # the table in a tuned table's directory that tries its learning rates
REPLACED = "replaced"  # a table's old runs, kept when they are trained again
STUDY_FILE = "study.log"  # Optuna's journal of the trials, which optuna-dashboard reads
_FOLDERS = (FIGURES, REPLACED, TUNING, "wandb")
SHOWN = 200  # characters of a wrong name
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_free(directory: Path, own: str) -> None:
    """Check that ``directory`` holds no other kind of runs than those whose file is ``own``."""
    for file in (CONFIG_FILE, LAYERS_FILE, PLAN_FILE, SEARCH_FILE):
        if file != own and (directory / file).exists():
            raise InputError(f"{directory} has other runs ({file}): choose another directory")


def check_name(kind: str, name: str) -> None:
    """Check that ``name`` can name a folder, and is not taken by a file or folder of a table."""
    is_taken = name.lower() in _FOLDERS or Path(name).suffix[1:2].isalpha()
    if is_taken or not _FOLDER.fullmatch(name):
        raise InputError(
            f"{kind} name {name[:SHOWN]!r} may have only letters, digits, '.', '_' and '-', 100 "
            f"in all; it may not be {' or '.join(_FOLDERS)}, nor end like a file, such as in .txt"
        )


def replaced_name(name: str, taken: Iterable[str]) -> str:
    """The new name of an old run that is trained again: ``replaced/base/seed-1.2`` if ``…seed-1.1``
    is ``taken``.
    """
    names = {*taken}
    count = 1
    while f"{REPLACED}/{name}.{count}" in names:
        count += 1
    return f"{REPLACED}/{name}.{count}"
