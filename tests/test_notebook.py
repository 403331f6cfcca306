"""The notebook of the docs runs, and shows what it says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ablations.tables.find import find_scale
from ablations.tables.plan import make_plan
from ablations.tables.plan_file import load_plan

nbformat: Any = pytest.importorskip("nbformat", reason="nbclient and ipykernel are not installed")
nbclient: Any = pytest.importorskip("nbclient", reason="nbclient and ipykernel are not installed")
pytest.importorskip("pandas", reason="pandas is not installed")

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def shown(notebook: Any) -> list[str]:
    """What its cells print, as text."""
    outputs = [each for cell in notebook.cells for each in cell.get("outputs", [])]
    return [x["text"] if "text" in x else x["data"]["text/plain"] for x in outputs]


@pytest.mark.slow
def test_the_notebook_shows_what_its_code_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    before = shown(notebook)
    place = {"metadata": {"path": str(NOTEBOOK.parent)}}
    nbclient.NotebookClient(notebook, timeout=120, resources=place).execute()
    assert len(before) >= 5 and shown(notebook) == before


def test_its_table_is_the_one_whose_result_it_reads() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (code,) = (cell.source for cell in notebook.cells if "TABLE = Table(" in cell.source)
    names: dict[str, Any] = {}
    exec(code, names)
    table = names["TABLE"]
    plan = make_plan(table, find_scale(table, "small"), table.rows, (1,))
    committed = load_plan(ROOT / "experiments" / "results" / "wide-heads")
    assert plan.configs.keys() == committed.configs.keys()
    for row, config in committed.configs.items():
        assert plan.configs[row].model == config.model
