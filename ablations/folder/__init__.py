"""Read the folder of a table or search.

Example:
    >>> for run in open_folder("runs/table3-small").runs():
    ...     print(run.row, run.seed, run.result and run.result.bleu)
"""

from __future__ import annotations

from pathlib import Path

from ablations.files import LAYERS_FILE, SEARCH_FILE
from ablations.folder.layers import LayersFolder
from ablations.folder.search import SearchFolder
from ablations.folder.table import TableFolder

__all__ = ["LayersFolder", "SearchFolder", "TableFolder", "open_folder"]


def open_folder(path: Path | str) -> TableFolder | SearchFolder | LayersFolder:
    """The folder of a table, a search or Table 1.

    Raises:
        InputError: if it is none of these, or its plan cannot be read.
    """
    if (Path(path) / LAYERS_FILE).is_file():
        return LayersFolder(Path(path))
    return open_runs(Path(path))


def open_runs(path: Path) -> TableFolder | SearchFolder:
    """The folder of a table or a search, the two kinds that have runs."""
    return SearchFolder(path) if (path / SEARCH_FILE).is_file() else TableFolder(path)
