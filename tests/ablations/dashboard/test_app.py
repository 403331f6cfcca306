"""What viewers get, from directories in every state."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from ablations.dashboard.app import Dashboard, make_app
from ablations.dashboard.directories import Directories
from ablations.report.report import write_report
from ablations.report.write import script_hashes
from ablations.runs.attempts import locate
from ablations.tables.plan import claim_plan
from ablations.tables.table import Cell
from experiments.run.results import COLUMNS
from tests.ablations.dashboard.conftest import TestClient
from tests.ablations.samples import finish, leave_curve, small_plan
from tests.ablations.search.samples import leave, small_search
from tests.ablations.status.samples import CRASH, begin

Parts = dict[str, Any]


def parts_after(root: Path, change: Callable[[], object]) -> tuple[Parts, Parts]:
    """All parts that a viewer gets at first, and those after a change on disk."""

    async def look() -> tuple[Parts, Parts]:
        dashboard = Dashboard(Directories([root], interval=0.0))
        changes = dashboard._changes(None, anyio.Event())
        first = await anext(changes)
        change()
        second = await anext(changes)
        await changes.aclose()
        return parse(first), parse(second)

    return asyncio.run(look())


def parse(event: dict[str, object]) -> Parts:
    return {x["part"]: x["value"] for x in json.loads(str(event["data"]))}


def drawn(spec: Any) -> set[float]:
    """All perplexities in a specification."""
    if isinstance(spec, dict):
        own = {spec["perplexity"]} if isinstance(spec.get("perplexity"), float) else set[float]()
        return own.union(*(drawn(value) for value in spec.values()))
    return (
        set[float]().union(*(drawn(value) for value in spec)) if isinstance(spec, list) else set()
    )


def test_a_page_shows_each_run_and_the_log_of_what_failed(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    for text in ("1 of 4 done", "4.92", "25.8", "40 %", "600/1,500", "2.500", "14,300", "node-a"):
        assert text in page.text
    assert "it broke" in page.text
    assert client.get("/d/pair-tiny").text.count("<section") == 1


def test_only_what_has_changed_is_sent(root: Path) -> None:
    run = root / "pair-tiny" / "base/seed-2.attempt-1"
    first, nothing = parts_after(root, lambda: None)
    assert set(first) == {"html", "curves"}
    assert drawn(first["curves"]) == {90.0, 40.0}
    assert "curves" not in nothing
    _, grown = parts_after(root, lambda: leave_curve(run, {200: 90.0, 400: 40.0, 600: 20.0}))
    assert drawn(grown["curves"]) == {90.0, 40.0, 20.0}
    _, done = parts_after(root, lambda: finish(root / "pair-tiny", Cell("narrow", 2), 7.77))
    assert "7.77" in done["html"]


def test_ten_viewers_share_a_reading(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directories, readings = Directories([root], interval=60.0), list[int]()
    read = directories._read
    monkeypatch.setattr(directories, "_read", lambda: readings.append(1) or read())

    async def look() -> None:
        await asyncio.gather(*(directories.read() for _ in range(10)))

    asyncio.run(look())
    assert readings == [1]


def test_tables_that_appear_and_disappear(client: TestClient, root: Path) -> None:
    claim_plan(root / "deeper" / "second", small_plan())
    assert client.get("/d/second").status_code == 200
    shutil.move(root / "pair-tiny", root.parent / "aside")
    gone = client.get("/d/pair-tiny").text
    assert "cannot be read now" in gone
    assert "4.92" in gone
    claim_plan(root / "pair-tiny", small_plan())  # another table of that name
    assert "4.92" not in client.get("/d/pair-tiny").text
    shutil.rmtree(root / "pair-tiny")
    shutil.move(root.parent / "aside", root / "pair-tiny")
    back = client.get("/d/pair-tiny").text
    assert "4.92" in back
    assert "cannot be read" not in back


def test_an_empty_folder_says_how_to_begin(tmp_path: Path) -> None:
    with TestClient(make_app(Directories([tmp_path / "runs"]), "localhost")) as client:
        page = client.get("/", headers={"host": "localhost"})
    assert "python -m ablations run table3" in page.text
    assert "<section" not in page.text


def test_damaged_files_and_html_in_texts_do_no_harm(client: TestClient, root: Path) -> None:
    table = root / "pair-tiny"
    evil = "<script>alert(1)</script>"
    failure = type(CRASH)(attempt=1, reason=evil, lines=(evil,), at=1.0)
    begin(table, "narrow/seed-2", given_up=True, failures=(failure,))
    leave_curve(locate(table / "base/seed-2"), {200: float("nan"), 400: float("inf"), 600: 3.25})
    (table / "base/seed-2.attempt-1/progress.json").write_text('{"stage": "tra')
    page = client.get("/").text
    assert evil not in page
    assert "&lt;script&gt;alert(1)" in page
    first, _ = parts_after(root, lambda: None)
    assert drawn(first["curves"]) == {3.25}
    (table / "table.json").write_text("{")
    assert "cannot be read now" in client.get("/").text


def test_a_search_has_its_figures(tmp_path: Path) -> None:
    search = small_search(tmp_path / "lr", trials=32)
    for place, name in enumerate(search.names[:31]):
        values = {"learning_rate_factor": 0.2 + 0.1 * place, "warmup_steps": 20 + place}
        leave(search, tmp_path / "lr" / name, values, perplexity=3.0 + place)
    first, _ = parts_after(tmp_path, lambda: None)
    assert set(first) == {"html", "history", "parallel", "importances", "slices"}
    assert "trials: 31 of 31 went on from step 668" in first["html"]
    assert "trial-0000, perplexity 3.000: learning_rate_factor 0.2" in first["html"]


def test_it_only_reads(client: TestClient, root: Path) -> None:
    def tree() -> dict[str, tuple[int, bytes]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
            for path in [root, *root.rglob("*")]
        }

    before = tree()
    for path in ("/", "/d/pair-tiny", "/d/pair-tiny/report"):
        client.get(path)
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert client.request(method, path).status_code == 405
    assert tree() == before


def test_what_is_not_there(client: TestClient) -> None:
    for path in ("/nothing", "/d/nothing", "/d/nothing/events", "/d/pair-tiny/report"):
        assert client.get(path).status_code == 404, path
    for path in ("/assets/page.html.j2", "/assets/..%2fapp.py"):
        assert client.get(path).status_code in (403, 404), path
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400


def test_until_the_first_validation_the_training_loss_is_drawn(root: Path) -> None:
    def train(name: str, lines: str) -> None:
        (begin(root / "pair-tiny", name) / "metrics.csv").write_text(
            f"{','.join(COLUMNS)}\n{lines}"
        )

    first, second = parts_after(
        root, lambda: train("narrow/seed-2", "50,4.5,,,,,\n100,4.25,,,,,\n")
    )
    assert "training" not in first
    axes = json.dumps(second["training"])
    assert (
        "training loss" in axes and '"loss": 4.25' in axes and "validation perplexity" not in axes
    )


def test_a_report_has_the_same_policy_and_runs_its_own_scripts_alone(
    client: TestClient, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = root / "pair-tiny" / "report.html"
    page.write_text("<script>alert(1)</script>")
    headers = client.get("/d/pair-tiny/report").headers
    policy, usual = (x["content-security-policy"] for x in (headers, client.get("/").headers))
    hashes = script_hashes()
    assert policy == usual.replace("script-src 'self'", f"script-src 'self' {hashes}")
    assert headers["cache-control"] == "no-store"
    monkeypatch.setattr(
        "ablations.report.write.draw", lambda specs: dict.fromkeys(specs, ("", b""))
    )
    write_report(root / "pair-tiny")
    own = page.read_text()
    for source in re.findall(r"<script>(.*?)</script>", own, re.DOTALL):
        assert base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() in hashes
