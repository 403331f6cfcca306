"""The command, and what viewers get from directories in every state."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from ablations.dashboard.page import Page, Reader, find_directories
from ablations.dashboard.server import serve
from ablations.figures.panels import MOST_RUNS
from ablations.folder import TableFolder
from ablations.report.report import write_report
from ablations.tables.plan_file import claim_plan
from ablations.tables.table import Cell
from experiments.records.run import locate
from tests.ablations.dashboard.conftest import get, serving
from tests.ablations.samples import finish, leave_curve, small_plan
from tests.ablations.search.samples import leave, small_search
from tests.ablations.status.samples import CRASH, begin
from transformer.errors import InputError

RESULTS = Path(__file__).parents[3] / "experiments" / "results"


def drawn(page: str) -> set[float]:
    """All perplexities in the specifications of a page."""
    return {float(x) for x in re.findall(r'"perplexity": ([\d.]+)', page)}


@pytest.mark.slow
def test_a_signal_ends_the_command_while_a_request_is_open(root: Path) -> None:
    command = [sys.executable, "-m", "ablations", "dashboard", "--port", "0", "--host", "0.0.0.0"]
    process = subprocess.Popen(
        command, cwd=root.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(rf" http://{re.escape(socket.gethostname())}:(\d+) ", line)
        assert found, line
        port = found[1]
        everybody = "everyone who can reach this machine can read it, logs included\n"
        assert process.stdout.readline() == everybody
        assert "4.92" in get(f"http://127.0.0.1:{port}").text
        with socket.create_connection(("127.0.0.1", int(port))) as unfinished:
            unfinished.sendall(b"GET / HTTP/1.1\r\n")
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, output) == (128 + signal.SIGINT, "")


def test_what_cannot_be_served(tmp_path: Path) -> None:
    def refused(*directories: Path, host: str = "127.0.0.1", port: int = 0) -> str:
        with pytest.raises(InputError) as caught:
            serve(directories, host=host, port=port, open_browser=False)
        return str(caught.value)

    assert "nothing is neither the directory of a table" in refused(tmp_path / "nothing")
    assert "cannot listen at no.such.host.invalid" in refused(host="no.such.host.invalid")
    with socket.create_server(("127.0.0.1", 65_535)):
        assert "no free port from 65535 on: choose another --port" in refused(port=65_535)


def test_a_port_in_use_is_replaced_by_the_next_free_one(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ablations.dashboard.server.Server.serve_forever", lambda _: None)
    monkeypatch.setattr("ablations.dashboard.server.stop_signals", list)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert serve([root], host="127.0.0.1", port=port, open_browser=False) == 0
    first, second = capsys.readouterr().out.splitlines()
    found = re.fullmatch(rf"port {port} is in use: using (\d+)", first)
    assert found and int(found[1]) > port and f"http://127.0.0.1:{found[1]} " in second


@pytest.mark.slow
def test_the_page_shows_each_run_its_curve_and_the_log_of_what_failed(
    address: str, root: Path
) -> None:
    answer = get(address)
    for text in ("1 of 4 done", "4.92 · 25.8", "600/1,500", "2.500", "14.3K", "node-a", "it broke"):
        assert text in answer.text
    assert answer.headers["content-encoding"] == "gzip" and drawn(answer.text) == {90.0, 40.0}
    run = root / "pair-tiny/base/seed-2.attempt-1"
    leave_curve(run, {200: 90.0, 400: 40.0, 600: 20.0})
    assert drawn(get(address).text) == {90.0, 40.0, 20.0}


def test_panels_show_what_runs_log_before_the_first_validation(address: str, root: Path) -> None:
    run = root / "pair-tiny/base/seed-2.attempt-1"
    leave_curve(run, {200: 90.0})
    assert re.findall(r'<figure id="[^"]*:([\w-]+)"', get(address).text) == [
        "panel-perplexity",
        "curves",
    ]
    metrics = run / "metrics.csv"
    metrics.write_text(metrics.read_text().partition("\n")[0] + "\n53,4.25,70.1,0.1,1.5,,\n")
    (run / "speed.csv").write_text("step,tokens_per_second\n53,14300\n")
    page = get(address).text
    assert re.findall(r'<figure id="[^"]*:([\w-]+)"', page) == [
        "panel-loss",
        "panel-learning-rate",
        "panel-gradient-norm",
        "panel-speed",
    ]
    for value in (4.25, 0.1, 1.5, 14300.0):
        assert f'{{"run": "base/seed-2", "step": 53, "value": {value}}}' in page


def test_what_is_in_progress_comes_first_and_apart_from_what_was_given_up(
    address: str, root: Path
) -> None:
    claim_plan(root / "a-table-that-waits", small_plan())
    page = get(address).text
    assert re.findall('<section id="([^"]*)"', page) == [
        f"{root}/pair-tiny",
        f"{root}/a-table-that-waits",
    ]
    captions = re.findall("<caption>(.*?)</caption>", page)
    assert captions[:2] == ["in progress", "failed, given up or stopped"]
    assert captions[2] == "PPL · BLEU of each row on the validation set, or its state"
    running, failed = re.findall("<caption>(?:in progress|failed, ).*?</table>", page, re.DOTALL)
    assert "base/seed-2" in running and "narrow" not in running
    assert "narrow/seed-1" in failed and "base/" not in failed
    assert '<th scope="col">step/PPL·BLEU</th>' in running


def test_runs_beyond_those_that_are_shown_are_counted() -> None:
    reading = Reader(RESULTS / "table3-small").read()
    assert len(reading.looks) == MOST_RUNS and reading.left_out == 60 - MOST_RUNS


def test_a_published_row_is_not_taken_for_the_base_of_the_curves() -> None:
    curves = Reader(RESULTS / "table2-small").read().figures["curves"]
    assert curves["title"] == "Learning curves, the base in grey"


def test_viewers_share_a_reading(root: Path) -> None:
    with serving(Page([root], interval=60.0)) as address, ThreadPoolExecutor(10) as viewers:
        first = get(address).text
        finish(root / "pair-tiny", Cell("narrow", 2), 7.77)
        assert {page.text for page in viewers.map(get, [address] * 10)} == {first}


def test_tables_that_appear_and_disappear(address: str, root: Path) -> None:
    claim_plan(root / "deeper" / "second", small_plan())
    assert get(address).text.count("<section") == 2
    shutil.move(root / "pair-tiny", root.parent / "aside")
    assert "4.92" not in get(address).text
    shutil.move(root.parent / "aside", root / "pair-tiny")
    assert "4.92" in get(address).text
    shutil.rmtree(root)
    assert "python -m ablations run table3" in get(address).text


def test_a_table_that_lies_elsewhere_is_shown_by_its_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (root / "pair-tiny").rename(tmp_path / "elsewhere" / "moved")
    (root / "pair-tiny").symlink_to(tmp_path / "elsewhere" / "moved")
    (root / "loop").symlink_to(root)  # is followed three times at most
    assert root / "pair-tiny" in find_directories(root)


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


def test_a_search_has_its_figures_and_the_table_of_its_best(tmp_path: Path) -> None:
    search = small_search(tmp_path / "lr", trials=32)
    for place, name in enumerate(search.names[:31]):
        values = {"learning_rate_factor": 0.2 + 0.1 * place, "warmup_steps": 20 + place}
        leave(search, tmp_path / "lr" / name, values, perplexity=3.0 + place)
    claim_plan(tmp_path / "lr" / "confirm", small_plan())
    with serving(Page([tmp_path])) as address:
        page = get(address).text
    assert re.findall("<h2>(.*)</h2>", page) == [
        "search base_lr at scale tiny",
        "pair at scale tiny",
    ]
    figures = re.findall(r'<figure id="[^"]*:(\w+)"', page)
    assert figures == ["history", "curves", "importances", "slices"]
    assert "best: trial-0000, perplexity 3.000: learning_rate_factor 0.2" in page


def test_the_dashboard_only_reads(address: str, root: Path) -> None:
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


def test_what_is_not_there_or_not_for_everybody(address: str, root: Path) -> None:
    table = f"/report/{root / 'pair-tiny'}"
    for path in ("/nothing", "/page.html.j2", "/..%2fserver.py", "/report/nothing", table):
        assert get(address + path).status_code == 404, path
    assert get(f"{address}{table}/x%2f../..").status_code == 404
    for host in ("evil.example", "127.0.0.1.evil.example:80", "[::1"):
        assert get(address, Host=host).status_code == 400, host
    for host in ("localhost", "LOCALHOST:1", "[::1]:8080"):
        assert get(address, Host=host).status_code == 200, host


@pytest.mark.usefixtures("undrawn")
def test_a_report_may_run_its_own_scripts_alone(address: str, root: Path) -> None:
    write_report(TableFolder(root / "pair-tiny"))
    (path,) = re.findall(r'<a href="([^"]+)">report</a>', get(address).text)
    report = get(address + path)
    policy = report.headers["content-security-policy"]
    assert "script-src 'self' 'unsafe-eval' 'sha256-" in policy and "default-src 'self'" in policy
    sources = re.findall(r"<script>(.*?)</script>", report.text, re.DOTALL)
    for source in sources:
        assert base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() in policy
    assert sources


def test_a_directory_of_any_name_above_the_working_one_has_its_report(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "elsewhere").mkdir()
    monkeypatch.chdir(root / "elsewhere")
    (root / "pair-tiny" / "report.html").write_text("the report")
    (root / "pair-tiny").rename(odd := root / os.fsdecode(b"a b%2f\xff"))
    for table in (Path("..") / odd.name, odd):
        with serving(Page([table])) as address:
            (path,) = re.findall(r'<a href="([^"]+)">report</a>', get(address).text)
            assert get(address + path).text == "the report"
