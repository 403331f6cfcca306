"""``run table1`` from the command line: what it measures, resumes, leaves out and refuses."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ablations.__main__ import main
from ablations.complexity import measure, results, run
from ablations.complexity.exponents import crossings
from ablations.complexity.notes import missing
from ablations.complexity.paper import ATTENTION, NAMES, RECURRENT
from ablations.complexity.report import layers_grid
from ablations.complexity.results import Measurements, Point, Setting, Steps, Timing, load
from ablations.report.layout import Grid

RUN = "run table1 --device cpu --directory out"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, and sizes that take a second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(results, "LENGTHS", (16, 32))
    monkeypatch.setattr(results, "WIDTHS", (64,))
    monkeypatch.setattr(results, "STEP_LENGTHS", (4, 8))
    monkeypatch.setattr(measure, "MOST_SAMPLES", results.LEAST_SAMPLES)
    # Bundling the page's script takes seconds; asking for the precision starts a process.
    monkeypatch.setattr("ablations.report.write.script", lambda: "")
    monkeypatch.setattr("ablations.tables.plan.native_precision", lambda: "fp32")
    return tmp_path / "out"


def call(arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["ablations", *arguments.split()])
    return main()


def test_it_measures_resumes_and_reports(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(RUN, monkeypatch) == 0
    found = load(place)
    assert set(found.points) == {(64, 16), (64, 32)}
    assert all(set(point.layers) == set(NAMES) for point in found.points.values())
    assert found.steps["path", RECURRENT, 8] == 8
    for name in ("report.md", "report.html", "results.csv", "figures/time.svg"):
        assert (place / name).stat().st_size > 500, name

    # A kill cuts off the last line; only what it held is measured again.
    path = place / "measurements.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], lines[-1][:99]]))
    (_, said) = missing(load(place))
    assert "1 damaged line(s) of measurements.jsonl were skipped" in said
    monkeypatch.setattr(run, "path_length", None)
    assert call(RUN, monkeypatch) == 0
    assert path.read_text().splitlines()[:-1] == lines[:-1]
    assert (place / "measurements.damaged.txt").read_text() == lines[-1][:99] + "\n"
    assert set(load(place).points) == set(found.points)

    capsys.readouterr()
    assert call("status out", monkeypatch) == 0
    assert "2 of 2 lengths and widths measured" in capsys.readouterr().out


def test_a_layer_that_would_take_too_long_is_left_out_and_named(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LIMIT_SECONDS", 0.0)
    assert call(RUN, monkeypatch) == 0
    points = load(place).points
    assert points[64, 16].left_out == {}
    assert set(points[64, 32].left_out) == set(NAMES)
    assert "recurrent, d = 64: n = 32 (a pass" in (place / "report.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "run table1 --seeds 1-3",
            "table1 takes --directory, --device and --quick, but not --seeds",
        ),
        (
            "run table1 --scale quick",
            "table1 takes --directory, --device and --quick, but not --scale",
        ),
        ("run table1 --from x", "table1 takes --directory, --device and --quick, but not --from"),
        ("run table1 --device cuda", "--device is cuda, but torch finds no GPU here"),
        ("run table3", "run table3 needs --scale"),
        ("run table3 --scale quick --device cpu", "--device is for table1"),
        ("plan table1 --scale quick", "table1 trains nothing"),
        (f"{RUN}/of-table", "of-table belongs to a table: choose another --directory"),
        (f"{RUN}/of-run", "of-run belongs to a single run: choose another --directory"),
        (f"{RUN}/elsewhere", "was measured with another device, an abacus, but here it is"),
        (f"{RUN}/newer", "was measured by version 99 of Table 1"),
        ("collect out/elsewhere --into x", "has measured layers"),
        ("run table3 --scale quick --directory out/elsewhere", "has measured layers"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    arguments: str,
    message: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    setting = {"kind": "cpu", "device": "an abacus", "torch": "2", "version": results.VERSION}
    files = {
        "of-table/table.json": {},
        "of-run/config.json": {},
        "elsewhere/layers.json": setting,
        "newer/layers.json": {**setting, "version": 99},
    }
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True)
        (place / name).write_text(json.dumps(content))
    assert call(arguments, monkeypatch) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def made_up() -> Measurements:
    """Attention that takes n²·d/1000 nanoseconds and an LSTM that takes n·d² of them."""
    found = Measurements(Setting(kind="cpu", device="an abacus, 1 thread", torch="2"))
    for d in (64, 128, 256, 512, 1024):
        for n in (64, 256, 512, 1024, 2048):
            costs = {ATTENTION: n * n * d, RECURRENT: n * d * d}
            layers = {
                name: Timing(forward=[cost * 4e-12] * 5, backward=[cost * 6e-12] * 5, memory=n * d)
                for name, cost in costs.items()
            }
            others = dict.fromkeys(NAMES, 1)
            point = Point(
                n=n, d=d, commit="abc", flops={**others, **costs}, layers=layers, left_out={}
            )
            found.add(point)
    for n in (8, 16, 32):
        found.add(Steps(what="path", name=RECURRENT, n=n, steps=n))
        found.add(Steps(what="sequential", name=ATTENTION, n=n, steps=2))
    return found


def by_name(grid: Grid) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in grid.rows}


def test_the_report_shows_exponents_crossings_and_growth() -> None:
    found = made_up()
    rows = by_name(layers_grid(found))
    assert rows[ATTENTION][:5] == ("O(n²·d)", "n^2.00·d^1.00", "n^2.00·d^1.00", "2", "O(1)")
    assert rows[RECURRENT][1:3] == ("n^1.00·d^2.00", "n^1.00·d^2.00")
    assert rows[RECURRENT][5:] == ("1.00·n", "O(n)")
    slower = by_name(crossings(found))
    assert slower["256"][:2] == ("256", "256")
    assert slower["1,024"][:2] == ("1,024", "1,024")
    # Where one of the two was left out, nothing is claimed beyond.
    cut = found.points[1024, 1024]
    for n in (1024, 2048):
        found.points[1024, n] = replace(cut, n=n, layers={}, left_out={RECURRENT: 9.0})
    slower = by_name(crossings(found))
    assert slower["1,024"][:2] == ("1,024", "> 512")


def test_quick_measures_small_sizes_and_a_later_call_adds_the_others(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "WIDTHS", (64, 512))
    assert call(f"{RUN} --quick", monkeypatch) == 0
    assert "2 of 4 pairs of length n and width d" in capsys.readouterr().out
    assert set(load(place).points) == {(64, 16), (64, 32)}
    assert call(RUN, monkeypatch) == 0
    assert len(load(place).points) == 4
    assert call("run table3 --scale quick --quick", monkeypatch) == 2
    assert "--quick is for table1" in capsys.readouterr().err
