"""What viewers get, from directories in every state."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from ablations.dashboard.page import Page
from ablations.report.report import write_report
from ablations.runs.attempts import locate
from ablations.tables.plan import claim_plan
from tests.ablations.dashboard.conftest import get, serving
from tests.ablations.samples import leave_curve, small_plan
from tests.ablations.search.samples import leave, small_search
from tests.ablations.status.samples import CRASH, begin


def drawn(page: str) -> set[float]:
    """All perplexities in the specifications of a page."""
    return {float(x) for x in re.findall(r'"perplexity": ([\d.]+)', page)}


def test_the_page_shows_each_run_its_curve_and_the_log_of_what_failed(
    address: str, root: Path
) -> None:
    answer = get(address)
    for text in ("1 of 4 done", "4.92 · 25.8", "600/1,500", "2.500", "14.3K", "node-a", "it broke"):
        assert text in answer.text
    assert answer.headers["content-encoding"] == "gzip" and drawn(answer.text) == {90.0, 40.0}
    leave_curve(root / "pair-tiny/base/seed-2.attempt-1", {200: 90.0, 400: 40.0, 600: 20.0})
    assert drawn(get(address).text) == {90.0, 40.0, 20.0}


def test_a_run_without_a_validation_shows_its_training_loss(address: str, root: Path) -> None:
    assert "training loss" not in get(address).text
    metrics = root / "pair-tiny/base/seed-2.attempt-1/metrics.csv"
    metrics.write_text(metrics.read_text().partition("\n")[0] + "\n50,4.25,70.1,0.1,1.0,,\n")
    page = get(address).text
    assert "training loss" in page and '"loss": 4.25' in page and not drawn(page)


def test_ten_viewers_share_a_reading(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, readings = Page([root], interval=60.0), list[int]()
    render = page._render
    monkeypatch.setattr(page, "_render", lambda: readings.append(1) or render())
    with serving(page) as address, ThreadPoolExecutor(10) as viewers:
        assert readings == []  # nobody looks
        pages = list(viewers.map(get, [address] * 10))
    assert all("4.92" in page.text for page in pages)
    assert readings == [1]


def test_tables_that_appear_and_disappear(address: str, root: Path) -> None:
    claim_plan(root / "deeper" / "second", small_plan())
    assert get(address).text.count("<section") == 2
    shutil.move(root / "pair-tiny", root.parent / "aside")
    assert "4.92" not in get(address).text
    shutil.move(root.parent / "aside", root / "pair-tiny")
    assert "4.92" in get(address).text
    shutil.rmtree(root)
    assert "python -m ablations run table3" in get(address).text


def test_damaged_files_and_html_in_texts_do_no_harm(address: str, root: Path) -> None:
    table = root / "pair-tiny"
    evil = "<script>alert(1)</script>"
    failure = type(CRASH)(attempt=1, reason=evil, lines=(evil,), at=1.0)
    begin(table, "narrow/seed-2", given_up=True, failures=(failure,))
    leave_curve(locate(table / "base/seed-2"), {200: float("nan"), 400: float("inf"), 600: 3.25})
    (table / "base/seed-2.attempt-1/progress.json").write_text('{"stage": "tra')
    page = get(address).text
    assert evil not in page
    assert "&lt;script&gt;alert(1)" in page
    assert drawn(page) == {3.25}
    (table / "table.json").write_text("{")
    assert "cannot be read now" in get(address).text


def test_a_search_has_its_figures(tmp_path: Path) -> None:
    search = small_search(tmp_path / "lr", trials=32)
    for place, name in enumerate(search.names[:31]):
        values = {"learning_rate_factor": 0.2 + 0.1 * place, "warmup_steps": 20 + place}
        leave(search, tmp_path / "lr" / name, values, perplexity=3.0 + place)
    with serving(Page([tmp_path])) as address:
        page = get(address).text
    figures = re.findall(r'<figure id="[^"]*:(\w+)"', page)
    assert figures == ["history", "curves", "parallel", "importances", "slices"]
    assert "best: trial-0000, perplexity 3.000: learning_rate_factor 0.2" in page


def test_it_only_reads(address: str, root: Path) -> None:
    def tree() -> dict[str, tuple[int, bytes]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
            for path in [root, *root.rglob("*")]
        }

    before = tree()
    for path in ("/", f"/report/{root}/pair-tiny"):
        get(address + path)
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert requests.request(method, address + path, timeout=30).status_code == 501
    assert tree() == before


@pytest.mark.parametrize(
    ("status", "path", "host"),
    [
        *((404, path, "localhost") for path in ("/nothing", "/page.html.j2", "/..%2fserver.py")),
        *((404, f"/report/{path}", "localhost") for path in ("nothing", "{}", "{}/x%2f../..")),
        *((400, "/", host) for host in ("evil.example", "127.0.0.1.evil.example:80", "[::1")),
        *((200, "/", host) for host in ("localhost", "LOCALHOST:1", "[::1]:8080")),
    ],
)
def test_what_is_not_there_or_not_for_everybody(
    address: str, root: Path, status: int, path: str, host: str
) -> None:
    assert get(address + path.format(root / "pair-tiny"), Host=host).status_code == status


def test_a_report_may_run_its_own_scripts_alone(
    address: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ablations.report.write.draw", lambda specs: dict.fromkeys(specs, ("", b""))
    )
    write_report(root / "pair-tiny")
    (path,) = re.findall(r'<a href="([^"]+)">report</a>', get(address).text)
    report = get(address + path)
    policy = report.headers["content-security-policy"]
    assert "script-src 'self' 'unsafe-eval' 'sha256-" in policy and "default-src 'self'" in policy
    sources = re.findall(r"<script>(.*?)</script>", report.text, re.DOTALL)
    for source in sources:
        assert base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() in policy
    assert sources
