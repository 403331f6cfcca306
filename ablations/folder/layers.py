"""The folder of Table 1."""

from __future__ import annotations

from pathlib import Path

from ablations.files import LAYERS_FILE, check_free
from ablations.folder.base import Folder, Record
from ablations.tables.measurements import load_measurements
from ablations.tables.table1 import TITLE
from experiments.records.run import Run
from transformer.files import make_directory


class LayersFolder(Folder):
    """The measurements of Table 1. It has no runs; its records are layers at each size."""

    def __init__(self, path: Path) -> None:
        self.path, self.plan = path, load_measurements(path)
        self.names, self.title = (), TITLE
        self.labels, self.configs = {"table": "table1"}, {}

    @property
    def left(self) -> list[str]:
        """The sizes that have not been measured yet."""
        return [f"d={d}, n={n}" for d, n in self.plan.lacking()]

    def _share(self, into: Path) -> dict[str, Run]:
        check_free(into, LAYERS_FILE)
        make_directory(into)
        self.plan.save(into)  # replaces the measurements there
        return {}

    def records(self) -> list[Record]:
        """A flat record for each layer at each size."""
        return self.plan.records()
