"""``run table1``, and the report of its measurements."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablations.cli import PROGRAM
from ablations.report.layout import Grid
from ablations.table1 import measure, measurements, paper
from ablations.table1.measurements import Measurements, Point, load_measurements
from ablations.table1.paper import ATTENTION, NAMES, RECURRENT
from ablations.table1.report import compose, find_crossing, fit_exponent, write_layers_report
from transformer import formats

RUN = "run table1 --device cpu --directory out"
COMMITTED = Path(__file__).parents[3] / "experiments" / "results" / "table1"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None) -> Path:
    """A working directory, and sizes that take a second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measurements, "LENGTHS", (16, 32))
    monkeypatch.setattr(measurements, "WIDTHS", (64, 512))
    monkeypatch.setattr(measure, "STEP_LENGTHS", (4, 8))
    return tmp_path / "out"


def sizes(found: Measurements) -> list[tuple[int, int]]:
    return [(point.d, point.n) for point in found.points]


def call(arguments: str) -> int:
    return PROGRAM.run(arguments.split())


def test_it_measures_small_sizes_first_and_after_ctrl_c_continues(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure_layers = measure.measure_layers
    monkeypatch.setattr(paper, "MOST_FLOPS_RECURRENT", 48 * 16 * 64**2)  # of the first size alone

    def interrupted(names: list[str], n: int, *words: Any) -> object:
        if n == 32:
            raise KeyboardInterrupt
        return measure_layers(names, n, *words)

    with monkeypatch.context() as patch:
        patch.setattr(measure, "measure_layers", interrupted)
        assert call(RUN) != 0
    assert "stopped; the same command continues from here" in capsys.readouterr().out
    before = load_measurements(place)
    assert sizes(before) == [(64, 16)]
    monkeypatch.setattr(measure, "path_length", None)  # what is counted is not counted again
    assert call(f"{RUN} --quick") == 0
    assert "2 of 4 pairs of length n and width d measured" in capsys.readouterr().out
    assert call(RUN) == 0
    found = load_measurements(place)
    assert sizes(found) == [(64, 16), (64, 32), (512, 16), (512, 32)]
    assert (found.paths, found.points[0]) == (before.paths, before.points[0])
    assert found.paths[RECURRENT] == [4, 8]
    for point in found.points:
        assert set(point.forward) == set(point.backward) == set(point.memory)
        assert {*point.memory, RECURRENT} == set(NAMES)
        assert (RECURRENT in point.memory) == ((point.d, point.n) == (64, 16))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run table1 --scale quick", "table1 takes --directory, --device and --quick alone"),
        ("run table1 --device cuda", "--device is cuda, but torch finds no GPU here"),
        ("run table3", "table3 needs --scale"),
        ("run table3 --scale quick --device cpu", "--device and --quick are for table1"),
        ("run table3 --scale quick --quick", "--device and --quick are for table1"),
        ("plan table1 --scale quick", "table1 is measured"),
        (f"{RUN}/of-table", "of-table has other runs (table.json): choose another --directory"),
        (f"{RUN}/of-run", "of-run has other runs (config.json): choose another --directory"),
        (f"{RUN}/elsewhere", "was measured on an abacus with torch 2, but here are "),
        ("report out/damaged", "layers.json cannot be read as JSON"),
        ("collect out/elsewhere --into x", "it has no table.json"),
        ("run table3 --scale quick --directory out/elsewhere", "has other runs (layers.json)"),
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
    setting = json.dumps({"kind": "cpu", "device": "an abacus", "torch": "2"})
    files = {
        "of-table/table.json": "{}",
        "of-run/config.json": "{}",
        "elsewhere/layers.json": setting,
        "damaged/layers.json": setting[:20],
    }
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(content)
    assert call(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_committed_report_is_that_of_the_committed_measurements(tmp_path: Path) -> None:
    shutil.copy(COMMITTED / "layers.json", tmp_path)
    write_layers_report(tmp_path)
    for name in ("report.md", "results.csv"):
        assert (tmp_path / name).read_text() == (COMMITTED / name).read_text()
    for name in ("report.html", "figures/time.svg", "figures/memory.svg"):
        assert (tmp_path / name).stat().st_size > 500, name


def made_up() -> Measurements:
    """Attention that takes n²·d/1000 nanoseconds and an LSTM that takes n·d² of them."""
    found = Measurements(kind="cpu", device="an abacus, 1 thread", torch="2")
    for d in (64, 128, 256, 512, 1024):
        for n in (64, 256, 512, 1024, 2048):
            costs = {ATTENTION: n * n * d, RECURRENT: n * d * d}
            there = {name: [cost * 4e-12] * 5 for name, cost in costs.items()}
            back = {name: [cost * 6e-12] * 5 for name, cost in costs.items()}
            flops = dict.fromkeys(NAMES, 1) | costs
            bytes_ = dict.fromkeys(costs, n * d * (2 + (n == 256)))
            found.points.append(
                Point(
                    n=n, d=d, commit="abc", flops=flops, forward=there, backward=back, memory=bytes_
                )
            )
    found.paths, found.sequential = {RECURRENT: [8, 32]}, {ATTENTION: [2, 2]}
    return found


def rows(found: Measurements, name: str) -> dict[str, tuple[str, ...]]:
    grid = compose(found)[name]
    assert isinstance(grid, Grid)
    return {row[0]: row[1:] for row in grid.rows}


def test_the_report_shows_exponents_crossings_and_steps() -> None:
    found = made_up()
    results = rows(found, "results")
    assert results[ATTENTION][:5] == ("O(n²·d)", "n^2.00·d^1.00", "n^2.00·d^1.00", "2", "O(1)")
    assert results[RECURRENT][1:3] == ("n^1.00·d^2.00", "n^1.00·d^2.00")
    assert results[RECURRENT][5:] == ("8 to 32", "O(n)")
    exponents = rows(found, "exponents")
    assert exponents[ATTENTION][:6] == ("2", *["2.00"] * 4, "0.82 ± 0.10")
    assert exponents[ATTENTION][6:] == ("1", *["1.00"] * 5)
    assert exponents[paper.CONVOLUTION][1:4] == ("0.00", formats.MISSING, formats.MISSING)
    crossings = rows(found, "crossings")
    assert crossings["256"][:2] == ("256", "256")
    assert crossings["1,024"][:2] == ("1,024", "1,024")
    # Where one of the two was left out, nothing is claimed beyond.
    for cut in found.points[-2:]:
        found.points[found.points.index(cut)] = replace(cut, memory={})
    assert rows(found, "crossings")["1,024"][:2] == ("1,024", "> 512")


def test_exponents_and_crossings_of_made_up_costs() -> None:
    costs = {(n, d): 7.0 * n**2 * d for n in (3, 5, 11) for d in (2, 13)}
    assert fit_exponent(costs) == pytest.approx((2, 0))
    # The line through (0, 0), (1, 1), (2, 1) has the slope 1/2; its interval is of one residual.
    bent = {(1, 1): 1.0, (2, 1): 2.0, (4, 1): 2.0}
    assert fit_exponent(bent) == pytest.approx((0.5, 12.706205 * math.sqrt(1 / 12)))
    assert fit_exponent({(3, 2): 1.0, (3, 5): 2.0}) is None
    assert find_crossing({32: 0.32, 64: 0.64, 128: 1.28}) == "100"
    assert find_crossing({32: 1.1, 64: 0.64, 128: 1.28}) == "100"
    assert (find_crossing({32: 1.1, 64: 1.2}), find_crossing({32: 0.1})) == ("< 32", "> 32")
