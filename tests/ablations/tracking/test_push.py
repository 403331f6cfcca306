"""``python -m ablations wandb`` against a stand-in for W&B's server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ablations.runs import identity
from ablations.tables.plan import Plan, claim_plan, make_plan
from ablations.tables.table import Cell
from ablations.tables.table3 import TABLE
from ablations.tracking.push import push
from ablations.tracking.workspace import Subject, _sections
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
        run = tracking._run
        assert run is not None
        for step in (50, 100):
            run.log({"loss": 9.0 / step, "trainer/global_step": step})
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


def _titles(view: dict[str, Any]) -> list[str]:
    sections = json.loads(view["spec"])["section"]["panelBankConfig"]["sections"]
    configs = [panel["config"] for section in sections for panel in section["panels"]]
    return [config["chartTitle"] for config in configs if "chartTitle" in config]


@pytest.mark.slow
def test_runs_the_table_and_the_workspace_arrive_and_a_second_push_skips_them(
    server: FakeWandb, tmp_path: Path
) -> None:
    plan = _plan(tmp_path, "base", "A-h1")
    for cell in plan.cells:
        _track(tmp_path, plan, cell)
    server.refused = "table3-tiny/A-h1"
    ended = _push(tmp_path, server.url, WANDB_API_KEY=_KEY)
    assert ended.returncode == 2
    assert "1 of 3 runs were not pushed, such as" in ended.stderr.splitlines()[-1]
    server.refused = ""
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
    assert [item["loss"] for item in arrived.history] == [0.18, 0.09]
    assert (arrived.summary["bleu"], arrived.summary["paper/bleu"]) == (80.0, 24.9)
    assert arrived.summary["paper/perplexity_difference"] == 0.37
    assert any(name.endswith(".table.json") for name in by_name["table3-tiny-table"].files)
    (view,) = server.views.values()
    assert view["name"][3:-2] in address
    assert {"perplexity", "bleu", "Training loss", "Gradient norm"} <= set(_titles(view))
    again = _push(tmp_path, server.url, WANDB_API_KEY=_KEY)
    assert again.stdout.splitlines() == [
        f"0 pushed to {ENTITY}/attention-is-all-you-need, 3 pushed before",
        address,  # of the same workspace, which was updated
    ]
    assert len(server.views) == 1


@pytest.mark.slow
def test_a_run_that_still_trains_is_left_out(server: FakeWandb, tmp_path: Path) -> None:
    plan = _plan(tmp_path, "base")
    (cell,) = plan.cells
    _track(tmp_path, plan, cell)
    (cell.directory(tmp_path) / ".process").write_text(identity.own_name())
    ended = _push(tmp_path, server.url, WANDB_API_KEY=_KEY)
    assert "1 left out as they still run" in ended.stdout, ended
    assert [run.record["displayName"] for run in server.runs.values()] == ["table3-tiny-table"]


def _leave_file(root: Path) -> None:
    folder = root / "base" / "seed-1" / "wandb" / "offline-run-20261122_000000-abc"
    folder.mkdir(parents=True)
    (folder / "run-abc.wandb").touch()


def test_without_a_login_it_is_one_line(server: FakeWandb, tmp_path: Path) -> None:
    _plan(tmp_path, "base")
    _leave_file(tmp_path)
    ended = _push(tmp_path, server.url)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == (
        "python -m ablations: error: there is no login at W&B: run wandb login, or set "
        "WANDB_API_KEY"
    )


def test_without_a_network_it_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _plan(tmp_path, "base")
    _leave_file(tmp_path)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # where nobody listens
    with pytest.raises(InputError, match=r"W&B's server http://127\.0\.0\.1:9 does not answer"):
        push(tmp_path, None, None)


def test_without_offline_runs_or_outside_a_table_it_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not the directory of a table"):
        push(tmp_path, None, None)
    _plan(tmp_path, "base")
    with pytest.raises(InputError, match="has no run that W&B tracked offline"):
        push(tmp_path, None, None)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # wandb_workspaces uses Pydantic so
def test_a_searchs_workspace_has_its_settings(tmp_path: Path) -> None:
    subject = Subject("search", "base_lr", "tiny", ("num_heads", "dropout"))
    results, curves, _ = _sections(tmp_path, subject)
    assert [type(panel).__name__ for panel in results.panels] == [
        "ParallelCoordinatesPlot", "ParameterImportancePlot", "ScatterPlot", "ScatterPlot",
    ]  # fmt: skip
    assert len(curves.panels) == 4
