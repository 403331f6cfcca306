"""What plan, status and report say of a file that was edited after runs had imported it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from ablations.costs.describe import describe_cost
from ablations.costs.estimate import plan_table
from ablations.folder import SearchFolder, TableFolder, open_folder, open_runs
from ablations.report.report import write_report
from ablations.report.search import write_search_report
from ablations.runs.options import Places
from ablations.runs.reuse import set_aside_stale
from ablations.status.status import DirectoryReader
from ablations.status.view import block
from ablations.tables.find import Selection, load_table
from ablations.tables.plan_file import claim_plan
from ablations.tables.table import Cell
from experiments.records.ownership import claim
from experiments.records.source import record_source, source_warnings
from tests.ablations.samples import finish
from tests.ablations.search.samples import bowl, small_search, work_on
from transformer.variant import FILES_VARIABLE, load_variant, variant_name

TABLE = """
import sys
from dataclasses import replace
from pathlib import Path

from ablations.tables import BASE, Table, row
from tests.ablations.samples import TINY
from transformer import Transformer

sys.path.insert(0, str(Path(__file__).parent / "lib"))
import far


class Own(Transformer):
    width = far.WIDTH


class Other(Transformer):
    pass


TABLE = Table(
    name="pair",
    title="",
    base=BASE,
    rows=(row("base"), row("own", model=Own), row("other", model=Other)),
    scales=(TINY,),
)
"""
WANTED = Selection(scale="tiny")
LINE = (
    "source changed since: own, other: a file that their runs had imported; "
    "run … --again own,other trains them again"
)


@pytest.fixture(autouse=True)
def _imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(FILES_VARIABLE, "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("far", None)


def write(folder: Path, width: int) -> Path:
    """A table's file that has rows with classes of its own."""
    (folder / "lib").mkdir(exist_ok=True)
    (folder / "lib" / "far.py").write_text(f"WIDTH = {width}\n")
    (folder / "own.py").write_text(TABLE)
    return folder / "own.py"


def said(file: Path, root: Path) -> list[str]:
    """The lines of plan, status and report, in this order, that say so."""
    wanted = Selection(scale="tiny", directory=root)
    cost = plan_table(str(file), wanted, device="H100", devices=None, places=Places())
    console = Console(record=True, width=300)
    console.print(block(DirectoryReader(root).read()))
    texts = ("\n".join(describe_cost(cost)), console.export_text(), write_report(TableFolder(root)))
    return [line.strip() for text in texts for line in text.splitlines() if "changed since" in line]


def warnings(root: Path) -> list[str]:
    return list(source_warnings(open_runs(root).runs()))


@pytest.mark.slow
def test_plan_status_and_report_name_the_rows_in_a_line_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, root = write(tmp_path, 1), tmp_path / "runs"
    plan, _ = WANTED.plan(load_table(str(file)))
    plan = claim_plan(root, plan)
    for cell in plan.cells:
        finish(root, cell)
        experiment = plan.experiment(cell)
        claim(cell.directory(root), experiment)
        if (name := experiment.config.model.model) is not None:
            load_variant(name)
            record_source(cell.directory(root), [name])
    assert warnings(root) == []
    write(tmp_path, 2)
    for line, start in zip(said(file, root), ("warning: ", "warning: ", "- "), strict=True):
        assert line.removeprefix(start) == LINE
    open_folder(root).collect(tmp_path / "collected")
    assert set_aside_stale(tmp_path / "collected", ["base", "own"]) == ["own/seed-1"]
    assert warnings(tmp_path / "collected") == [
        LINE.replace("own, other", "other").replace("own,", "")
    ]
    monkeypatch.setenv(FILES_VARIABLE, "")  # as for a command that is not given the table's file
    assert warnings(root) == [LINE] and warnings(tmp_path / "collected") == []
    own = Cell("own", 1).directory(root)
    (own / "source.json").write_text("{")  # which a run can do without
    (own / "source-places.json").unlink()
    os.mkfifo(own / "source-places.json")
    (line,) = warnings(root)
    assert "since: other: " in line


@pytest.mark.slow
def test_the_report_of_a_search_names_the_trials(tmp_path: Path) -> None:
    root, file = tmp_path / "search", write(tmp_path, 1)
    small_search(root, trials=3)
    work_on(root, bowl)
    load_variant(name := variant_name(f"{file}:Own"))
    record_source(root / "trial-0001", [name])
    write(tmp_path, 2)
    text = write_search_report(SearchFolder(root))
    assert "source changed since: trial-0001: " in text and "--again" not in text
    many = [replace(SearchFolder(root).read("trial-0001"), name=f"trial-{x}") for x in range(12)]
    (line,) = source_warnings(many)
    assert "trial-9, 2 more: " in line
