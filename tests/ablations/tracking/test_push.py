"""``python -m ablations wandb`` against a stand-in for W&B's server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ablations.tables.plan import Plan, make_plan
from ablations.tables.plan_file import claim_plan
from ablations.tables.table3 import TABLE
from ablations.tracking.push import _is_live, push, track_table_run
from ablations.tracking.workspace import sections_of
from experiments.records.processes import own_name
from experiments.records.progress import PROGRESS_FILE
from experiments.records.result import save_result
from experiments.records.run import read_run
from experiments.tracking import Tracking
from tests.ablations.samples import TINY, finish, result, small_plan
from tests.ablations.status.samples import training
from tests.ablations.tracking.conftest import ENTITY, FakeWandb
from transformer.config import to_dict
from transformer.errors import InputError
from transformer.files import write_json


def _plan(root: Path, *rows: str) -> Plan:
    chosen = [row for row in TABLE.rows if row.name in rows]
    return claim_plan(root, make_plan(TABLE, TINY, chosen, (1,)))


def _settings(folder: Path, url: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "settings").write_text(f"[default]\nbase_url = {url}\n")


def _push(root: Path, url: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Push to the server that the user's own settings name; those of others name another one."""
    here, own = root.parent, root.parent / "own"
    _settings(own, url)
    for folder in (here, root):
        _settings(folder / "wandb", "http://127.0.0.1:9")
    environment = {"WANDB_CONFIG_DIR": str(own), "WANDB_API_KEY": "0123456789" * 4}
    before = {*here.iterdir()}
    ended = subprocess.run(
        [sys.executable, "-m", "ablations", "wandb", root.name, *more],
        cwd=here,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert {*here.iterdir()} == before  # wandb sync would write its logs here
    return ended


@pytest.mark.slow
def test_runs_the_table_and_the_workspace_arrive_and_a_second_push_skips_them(
    server: FakeWandb, tmp_path: Path
) -> None:
    root = tmp_path / "table"
    plan = _plan(root, "base", "A-h1")
    for cell in plan.cells:
        directory = cell.directory(root)
        directory.mkdir(parents=True)
        with closing(Tracking(plan.experiment(cell), directory)) as tracking:
            tracking.summarise(result(cell))
        save_result(directory, result(cell))
    in_progress = plan.cells[0].directory(root) / ".process"
    in_progress.write_text(own_name())
    server.refused = "table3-tiny/A-h1"
    ended = _push(root, server.url)
    assert ended.returncode == 2
    assert "A-h1/seed-1/wandb/offline-run-" in ended.stderr and len(server.views) == 1
    assert "1 runs were not pushed: the same command continues" in ended.stderr.splitlines()[-1]
    server.refused = ""
    ended = _push(root, server.url)
    assert "1 left out as they are still running" in ended.stdout, ended
    in_progress.unlink()
    ended = _push(root, server.url)
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
    server.refused = "nobody"
    ended = _push(root, server.url, "--entity", "nobody")
    assert ended.returncode == 2, ended
    assert "does not take the workspace of nobody/attention" in ended.stderr.splitlines()[-1]
    sections = json.loads(view["spec"])["section"]["panelBankConfig"]["sections"]
    assert {"Results", "Learning curves"} <= {section["name"] for section in sections}


def _offline_run(root: Path) -> Path:
    folder = root / "base" / "seed-1" / "wandb" / "offline-run-20261122_000000-abc"
    folder.mkdir(parents=True)
    (folder / "run-abc.wandb").touch()
    return folder / "run-abc.wandb"


@pytest.mark.parametrize(
    ("said", "again"),
    [
        ("wandb: ERROR Failed to sync all data: the file ends with an incomplete record.", False),
        ("wandb: ERROR Failed to read: transactionlog: bad header: EOF", False),
        ("wandb: ERROR no space left for you", True),
    ],
)
def test_what_cannot_be_pushed_is_named_and_if_damaged_not_tried_again(
    said: str, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    _plan(tmp_path, "base")
    file, synced = _offline_run(tmp_path), list[list[Path]]()
    other = file.with_name("run-other.wandb")
    other.touch()

    def sync(files: list[Path], *_: str) -> str:
        """W&B lets a file wait for another one of the same run, which fails."""
        synced.append(files)
        if files == [other]:
            other.with_name(f"{other.name}.synced").touch()
        return said

    def ignore(*_: Any) -> str:
        return "https://wandb.test"

    for name in ("_log_in", "set_up", "save_workspace"):
        monkeypatch.setattr(f"ablations.tracking.push.{name}", ignore)
    monkeypatch.setattr("ablations.tracking.push._sync", sync)
    with pytest.warns(UserWarning, match=f"{file} (is damaged|was not pushed .wandb: ERROR no s)"):
        if again:
            with pytest.raises(InputError, match="1 runs were not pushed"):
                push(tmp_path, "e", "p")
        else:
            assert push(tmp_path, "e", "p") == 0
    assert synced == [[file, other], [file], [other]]
    first, address = capsys.readouterr().out.splitlines()
    assert first == "1 pushed to e/p, 0 pushed before" + ", 1 damaged" * (not again)
    assert address == "https://wandb.test"
    if not again:
        assert push(tmp_path, "e", "p") == 0
        assert len(synced) == 3


@pytest.mark.slow
def test_a_file_that_was_cut_off_is_pushed_as_far_as_it_goes(
    server: FakeWandb, tmp_path: Path
) -> None:
    root = tmp_path / "table"
    plan = _plan(root, "base")
    (cell,) = plan.cells
    directory = cell.directory(root)
    directory.mkdir(parents=True)
    Tracking(plan.experiment(cell), directory).close()
    (file,) = directory.glob("wandb/offline-run-*/run-*.wandb")
    file.write_bytes(file.read_bytes()[:-9])
    ended = _push(root, server.url)
    assert ended.returncode == 0, ended
    assert f"{file.relative_to(tmp_path)} is damaged: at most its start is pushed" in ended.stderr
    (run,) = server.runs.values()
    assert run.record["groupName"] == "table3-tiny/base"
    assert len(server.views) == 1


@pytest.mark.parametrize(
    ("process", "seconds_ago", "is_live"),
    [
        (None, 99, True),  # this process
        ("elsewhere:1:2:3", 9, True),
        ("elsewhere:1:2:3", 99, False),
        ("", None, False),
    ],
)
def test_a_run_that_another_machine_reports_is_not_pushed_yet(
    tmp_path: Path, process: str | None, seconds_ago: float | None, is_live: bool
) -> None:
    (tmp_path / ".process").write_text(own_name() if process is None else process)
    if seconds_ago is not None:
        write_json(tmp_path / PROGRESS_FILE, to_dict(training(4, seconds_ago=seconds_ago)))
    assert _is_live(read_run(tmp_path)) == is_live


def test_a_file_of_no_run_is_whole() -> None:
    assert not _is_live(None)


@pytest.mark.slow
def test_what_cannot_be_pushed_is_refused(
    server: FakeWandb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    def refused() -> str:
        with pytest.raises(InputError) as caught:
            push(tmp_path, None, None)
        return str(caught.value)

    assert "is not the directory of a table" in refused()
    _plan(tmp_path, "base")
    assert "has no run that W&B tracked offline" in refused()
    _offline_run(tmp_path)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # where nobody listens
    assert "W&B's server http://127.0.0.1:9 does not answer" in refused()
    monkeypatch.setenv("WANDB_BASE_URL", server.url)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    assert refused() == "you are not logged in to W&B: run wandb login, or set WANDB_API_KEY"
    wandb.teardown()  # as it remembers the server


def test_the_run_of_a_table_has_its_finished_runs_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cell in claim_plan(tmp_path, small_plan()).cells:
        finish(tmp_path, cell)
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "curves.png").touch()
    calls: list[Any] = []
    monkeypatch.setattr("ablations.tracking.push.track_table", lambda *x, **y: calls.extend([x, y]))
    track_table_run(tmp_path)
    (_, heads, lines, figures), more = calls
    assert (more["name"], more["group"]) == ("pair-tiny-table", "pair-tiny")
    assert more["tags"] == ("pair", "tiny", "table") and [*figures] == ["curves"]
    columns = dict(zip(heads, zip(*lines, strict=True), strict=True))
    assert columns["row"] == ("base", "narrow") and columns["paper_bleu"] == (25.0, 24.0)
    for values in columns.values():  # W&B takes one type in a column
        assert len({isinstance(x, str) for x in values if x is not None}) <= 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # wandb_workspaces uses Pydantic so
def test_a_searchs_workspace_has_its_settings(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "curves.png").touch()  # which is not in W&B
    results, curves = sections_of(tmp_path, ("num_heads", "dropout"))
    (panel,) = results.panels
    assert type(panel).__name__ == "ParallelCoordinatesPlot" and len(panel.columns) == 3
    assert len(curves.panels) == 2
