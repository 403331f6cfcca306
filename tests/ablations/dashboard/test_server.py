"""What viewers get, from directories in every state."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ablations.dashboard.directories import Directories
from ablations.report.report import write_report
from ablations.report.write import script_hashes
from ablations.runs.attempts import locate
from ablations.tables.plan import claim_plan
from ablations.tables.table import Cell
from experiments.records.outputs import COLUMNS
from tests.ablations.dashboard.conftest import Client, serving
from tests.ablations.samples import finish, leave_curve, small_plan
from tests.ablations.search.samples import leave, small_search
from tests.ablations.status.samples import CRASH, begin


def drawn(spec: Any) -> set[float]:
    """All perplexities in a specification."""
    return {float(x) for x in re.findall(r'"perplexity": ([\d.]+)', json.dumps(spec))}


def test_a_page_shows_each_run_and_the_log_of_what_failed(client: Client) -> None:
    page = client.get("/")
    assert page.status == 200
    for text in ("1 of 4 done", "4.92", "25.8", "40 %", "600/1,500", "2.500", "14.3K", "node-a"):
        assert text in page.text
    assert "it broke" in page.text
    assert client.get("/d/pair-tiny").text.count("<section") == 1


def test_only_what_has_changed_is_sent(client: Client, root: Path) -> None:
    run = root / "pair-tiny" / "base/seed-2.attempt-1"
    first, version = client.changes()
    assert set(first) == {"html", "curves"}
    assert drawn(first["curves"]) == {90.0, 40.0}
    nothing, _ = client.changes(version)
    assert "curves" not in nothing
    leave_curve(run, {200: 90.0, 400: 40.0, 600: 20.0})
    grown, version = client.changes(version)
    assert drawn(grown["curves"]) == {90.0, 40.0, 20.0}
    finish(root / "pair-tiny", Cell("narrow", 2), 7.77)
    done, version = client.changes(version)
    assert "7.77" in done["html"]
    with serving(Directories([root])) as address:  # a page of an earlier server gets all
        assert set(Client(address).changes(version)[0]) == {"html", "curves"}
    assert set(client.changes(10**14)[0]) == {"html", "curves"}  # of a clock that was ahead


def test_ten_viewers_share_a_reading(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directories, readings = Directories([root], interval=60.0), list[int]()
    read = directories._read
    monkeypatch.setattr(directories, "_read", lambda: readings.append(1) or read())
    with serving(directories) as address, ThreadPoolExecutor(10) as viewers:
        assert readings == []  # nobody looks
        pages = list(viewers.map(Client(address).get, ["/"] * 10))
    assert all("4.92" in page.text for page in pages)
    assert readings == [1]


def test_tables_that_appear_and_disappear(client: Client, root: Path) -> None:
    claim_plan(root / "deeper" / "second", small_plan())
    assert client.get("/d/second").status == 200
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
    with serving(Directories([tmp_path / "runs"])) as address:
        page = Client(address).get("/", Host="localhost:8080")
    assert "python -m ablations run table3" in page.text
    assert "<section" not in page.text


def test_damaged_files_and_html_in_texts_do_no_harm(client: Client, root: Path) -> None:
    table = root / "pair-tiny"
    evil = "<script>alert(1)</script>"
    failure = type(CRASH)(attempt=1, reason=evil, lines=(evil,), at=1.0)
    begin(table, "narrow/seed-2", given_up=True, failures=(failure,))
    leave_curve(locate(table / "base/seed-2"), {200: float("nan"), 400: float("inf"), 600: 3.25})
    (table / "base/seed-2.attempt-1/progress.json").write_text('{"stage": "tra')
    page = client.get("/").text
    assert evil not in page
    assert "&lt;script&gt;alert(1)" in page
    assert drawn(client.changes()[0]["curves"]) == {3.25}
    (table / "table.json").write_text("{")
    assert "cannot be read now" in client.get("/").text


def test_a_search_has_its_figures(tmp_path: Path) -> None:
    search = small_search(tmp_path / "lr", trials=32)
    for place, name in enumerate(search.names[:31]):
        values = {"learning_rate_factor": 0.2 + 0.1 * place, "warmup_steps": 20 + place}
        leave(search, tmp_path / "lr" / name, values, perplexity=3.0 + place)
    with serving(Directories([tmp_path])) as address:
        first, _ = Client(address).changes()
    assert set(first) == {"html", "history", "parallel", "importances", "slices"}
    assert "trials: 31 of 31 went on from step 668" in first["html"]
    assert "trial-0000, perplexity 3.000: learning_rate_factor 0.2" in first["html"]


def test_it_only_reads(client: Client, root: Path) -> None:
    def tree() -> dict[str, tuple[int, bytes]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
            for path in [root, *root.rglob("*")]
        }

    before = tree()
    for path in ("/", "/d/pair-tiny", "/d/pair-tiny/report", "/changes?since=0"):
        client.get(path)
        head = client.get(path, "HEAD")
        assert head.text == "" and int(head.headers["content-length"]) > 0
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert client.get(path, method).status == 501
    assert tree() == before


@pytest.mark.parametrize(
    ("status", "paths", "hosts"),
    [
        (404, ["/nothing", "/d/nothing", "/d/nothing/changes", "/d/pair-tiny/report"], [""]),
        (404, ["/assets/page.html.j2", "/assets/..%2fserver.py", "/assets/../server.py"], [""]),
        (404, ["/d/pair-tiny/table.json", "/d/pair-tiny/../../table.json", "//[", "/d"], [""]),
        (400, ["/"], ["evil.example", "127.0.0.1.evil.example:80", "[::1"]),
        (200, ["/"], ["localhost", "LOCALHOST:1", "[::1]:8080"]),
    ],
)
def test_what_is_not_there_or_not_for_everybody(
    client: Client, status: int, paths: list[str], hosts: list[str]
) -> None:
    for path, host in itertools.product(paths, hosts):
        assert client.get(path, Host=host or "localhost").status == status, (path, host)


def test_until_the_first_validation_the_training_loss_is_drawn(client: Client, root: Path) -> None:
    assert "training" not in client.changes()[0]
    metrics = begin(root / "pair-tiny", "narrow/seed-2") / "metrics.csv"
    metrics.write_text(f"{','.join(COLUMNS)}\n50,4.5,,,,,\n100,4.25,,,,,\n")
    axes = json.dumps(client.changes()[0]["training"])
    assert "training loss" in axes and '"loss": 4.25' in axes and "perplexity" not in axes


def test_a_report_has_the_same_policy_and_runs_its_own_scripts_alone(
    client: Client, root: Path, monkeypatch: pytest.MonkeyPatch
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
