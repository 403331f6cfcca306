"""``python -m ablations wandb`` against a stand-in for W&B's server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ablations.runs.lock import own_name
from ablations.tables.plan import Plan, claim_plan, make_plan
from ablations.tables.table import Cell
from ablations.tables.table3 import TABLE
from ablations.tracking.push import push
from ablations.tracking.workspace import sections_of
from experiments.records.result import save_result
from experiments.tracking import Tracking
from tests.ablations.samples import TINY, result
from tests.ablations.tracking.fake_wandb import ENTITY, FakeWandb, fake_wandb
from transformer.errors import InputError

_KEY = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def server() -> Iterator[FakeWandb]:
    with fake_wandb() as fake:
        yield fake


def _plan(root: Path, *rows: str) -> Plan:
    chosen = [row for row in TABLE.rows if row.name in rows]
    return claim_plan(root, make_plan(TABLE, TINY, chosen, (1,)))


def _track(root: Path, plan: Plan, cell: Cell) -> None:
    """Leave what a run leaves that was tracked offline."""
    directory = cell.directory(root)
    directory.mkdir(parents=True)
    with Tracking(plan.experiment(cell), directory) as tracking:
        made = result(cell)
        tracking.summarise(made)
    save_result(directory, made)


def _push(root: Path, url: str, **environment: str) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, "WANDB_BASE_URL": url, "NETRC": str(root / "no-netrc")}
    return subprocess.run(
        [sys.executable, "-m", "ablations", "wandb", str(root)],
        env=surroundings | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_runs_the_table_and_the_workspace_arrive_and_a_second_push_skips_them(
    server: FakeWandb, tmp_path: Path
) -> None:
    plan = _plan(tmp_path, "base", "A-h1")
    for cell in plan.cells:
        _track(tmp_path, plan, cell)
    in_progress = plan.cells[0].directory(tmp_path) / ".process"
    in_progress.write_text(own_name())
    server.refused = "table3-tiny/A-h1"
    ended = _push(tmp_path, server.url, WANDB_API_KEY=_KEY)
    assert ended.returncode == 2
    assert "1 of 2 runs were not pushed, such as" in ended.stderr.splitlines()[-1]
    server.refused = ""
    ended = _push(tmp_path, server.url, WANDB_API_KEY=_KEY)
    assert "1 left out as they still run" in ended.stdout, ended
    in_progress.unlink()
    ended = _push(tmp_path, server.url, WANDB_API_KEY=_KEY)
    assert ended.returncode == 0, ended
    first, address = ended.stdout.splitlines()
    assert first == f"1 pushed to {ENTITY}/attention-is-all-you-need, 2 pushed before"
    by_name = {run.record["displayName"]: run for run in server.runs.values()}
    assert set(by_name) == {"table3-tiny/base-seed1", "table3-tiny/A-h1-seed1", "table3-tiny-table"}
    arrived = by_name["table3-tiny/A-h1-seed1"]
    assert arrived.record["groupName"] == "table3-tiny/A-h1"
    config = {name: entry["value"] for name, entry in arrived.config.items() if name != "_wandb"}
    known = {"table": "table3", "scale": "tiny", "row": "A-h1", "seed": 1, "num_heads": 1}
    assert known.items() <= config.items()
    assert any(name.endswith(".table.json") for name in by_name["table3-tiny-table"].files)
    (view,) = server.views.values()  # updated by the second push
    assert view["name"][3:-2] in address
    sections = json.loads(view["spec"])["section"]["panelBankConfig"]["sections"]
    assert {"Results", "Learning curves"} <= {section["name"] for section in sections}


def test_what_cannot_be_pushed_is_one_line(
    server: FakeWandb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="is not the directory of a table"):
        push(tmp_path, None, None)
    _plan(tmp_path, "base")
    with pytest.raises(InputError, match="has no run that W&B tracked offline"):
        push(tmp_path, None, None)
    folder = tmp_path / "base" / "seed-1" / "wandb" / "offline-run-20261122_000000-abc"
    folder.mkdir(parents=True)
    (folder / "run-abc.wandb").touch()
    ended = _push(tmp_path, server.url)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (
        2,
        "python -m ablations: error: there is no login at W&B: run wandb login, or set "
        "WANDB_API_KEY",
    )
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # where nobody listens
    with pytest.raises(InputError, match=r"W&B's server http://127\.0\.0\.1:9 does not answer"):
        push(tmp_path, None, None)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # wandb_workspaces uses Pydantic so
def test_a_searchs_workspace_has_its_settings(tmp_path: Path) -> None:
    results, curves = sections_of(tmp_path, ("num_heads", "dropout"))
    (panel,) = results.panels
    assert type(panel).__name__ == "ParallelCoordinatesPlot" and len(panel.columns) == 3
    assert len(curves.panels) == 2
