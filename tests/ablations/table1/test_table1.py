"""``run table1``, the report of its measurements, and its layers against formulas."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ablations.cli import PROGRAM
from ablations.folder import LayersFolder
from ablations.table1 import measure
from ablations.table1.layers import make_layer, restricted_attention, self_attention
from ablations.table1.measure import count_flops, memory, path_length, sequential_operations
from ablations.table1.report import find_crossing, fit_exponent, write_layers_report
from ablations.tables import table1 as paper
from ablations.tables.measurements import Measurements, load_measurements
from ablations.tables.table1 import NAMES, RECURRENT

RUN = "run table1 --device cpu --directory out"
COMMITTED = Path(__file__).parents[3] / "experiments" / "results" / "table1"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None) -> Path:
    """A working directory, and sizes that take a second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(paper, "LENGTHS", (16, 32))
    monkeypatch.setattr(paper, "WIDTHS", (64, 512))
    monkeypatch.setattr(measure, "STEP_LENGTHS", (4, 8))
    monkeypatch.setattr(measure, "_SAMPLE_SECONDS", 1e-9)  # one pass
    return tmp_path / "out"


def sizes(found: Measurements) -> list[tuple[int, int]]:
    return [(point.d, point.n) for point in found.points]


def call(arguments: str) -> int:
    return PROGRAM.run(arguments.split())


@pytest.mark.slow
def test_it_measures_small_sizes_first_and_after_ctrl_c_continues(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure_layers = measure.measure_layers
    monkeypatch.setattr(paper, "MOST_FLOPS_RECURRENT", 48 * 16 * 64**2)  # of the first size alone

    def interrupted(n: int, *words: Any) -> object:
        if n == 32:
            raise KeyboardInterrupt
        return measure_layers(n, *words)

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
        ("run table1 --device cuda", "--device is cuda, but torch finds no GPU here"),
        ("run table3 --scale quick --device cpu", "--device and --quick are for table1"),
        ("run table3 --scale quick --quick", "--device and --quick are for table1"),
        ("plan table1 --scale quick", "table1 is measured"),
        (f"{RUN}/of-table", "of-table has other runs (table.json): choose another directory"),
        (f"{RUN}/of-run", "of-run has other runs (config.json): choose another directory"),
        (f"{RUN}/elsewhere", "was measured on an abacus with torch 2, but this is "),
        ("report out/damaged", "layers.json cannot be read as JSON"),
        ("collect out/damaged --into x", "layers.json cannot be read as JSON"),
        ("verify out/elsewhere", "it has no table.json"),
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


@pytest.mark.slow
def test_the_committed_report_is_that_of_the_committed_measurements(tmp_path: Path) -> None:
    shutil.copy(COMMITTED / "layers.json", tmp_path)
    write_layers_report(LayersFolder(tmp_path))
    for name in ("report.md", "results.csv"):
        assert (tmp_path / name).read_text() == (COMMITTED / name).read_text()
    for name in ("report.html", "figures/time.svg", "figures/memory.svg"):
        assert (tmp_path / name).stat().st_size > 500, name


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


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_keeps_the_shape_and_every_position_gets_a_gradient(name: str) -> None:
    x = torch.randn(2, 37, 64, requires_grad=True)
    y = make_layer(name, 64)(x)
    assert y.shape == x.shape
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.isfinite().all()
    assert gradient.abs().sum(dim=-1).min() > 0


@pytest.mark.parametrize("n", [5, 8, 29])
def test_restricted_attention_is_attention_under_a_band(n: int) -> None:
    r, x = 8, torch.randn(3, n, 128, dtype=torch.float64)
    heads = x.unflatten(-1, (2, 64)).transpose(1, 2)
    distance = torch.arange(n) - torch.arange(n)[:, None]
    scores = (heads @ heads.mT / 8).masked_fill((distance < -r // 2) | (distance >= r // 2), -1e30)
    expected = (scores.softmax(-1) @ heads).transpose(1, 2).flatten(2)
    torch.testing.assert_close(restricted_attention(x, r), expected)
    torch.testing.assert_close(restricted_attention(x, 2 * n), self_attention(x))


def test_flops_are_those_of_the_formulas() -> None:
    n, d, k, r = 256, 128, 3, 64
    expected = {
        paper.ATTENTION: 12 * n**2 * d,
        paper.RECURRENT: 48 * n * d**2,
        paper.CONVOLUTION: 6 * k * n * d**2,
        paper.SEPARABLE: 6 * (k * n * d + n * d**2),
        paper.RESTRICTED: 2 * 12 * r * n * d,
        paper.PROJECTED: 12 * n**2 * d + 24 * n * d**2,
    }
    assert {name: count_flops(name, n, d) for name in NAMES} == expected


@pytest.mark.parametrize("name", [paper.ATTENTION, paper.CONVOLUTION, paper.PROJECTED])
def test_backward_takes_twice_the_products_of_forward(name: str) -> None:
    x = torch.empty(1, 29, 64, device="meta", requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        y = make_layer(name, 64).to("meta")(x)
        y.backward(torch.empty_like(y))
    assert counter.get_total_flops() == count_flops(name, 29, 64)


def test_memory_is_what_backward_needs_without_weights() -> None:
    x = torch.randn(1, 32, 64, requires_grad=True)
    values = 32 * 64 * 4
    assert memory(make_layer(paper.CONVOLUTION, 64), x) == values  # its input alone
    assert memory(make_layer(paper.SEPARABLE, 64), x) == 2 * values


@pytest.mark.parametrize("n", [16, 81, 130])
def test_path_lengths(n: int) -> None:
    assert path_length(paper.ATTENTION, n) == 1
    assert path_length(paper.RECURRENT, n) == n
    assert path_length(paper.DILATED, n) == next(steps for steps in range(n) if 3**steps >= n)
    assert path_length(paper.RESTRICTED, n) == math.ceil((n - 1) / 32)


@pytest.mark.parametrize("name", NAMES)
def test_only_the_recurrent_layer_has_a_chain_as_long_as_its_input(name: str) -> None:
    short, long = (sequential_operations(name, n) for n in (3, 29))
    assert (short, long) == ((3, 29) if name == paper.RECURRENT else (short, short))


@pytest.mark.slow
def test_measurements_are_collected_with_their_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(f"collect {COMMITTED} --into {tmp_path / 'copy'}") == 0
    assert capsys.readouterr().out == f"measurements added to {tmp_path / 'copy'}\n"
    for name in ("layers.json", "report.md"):
        copied, committed = (
            (x / name).read_text().rstrip() for x in (tmp_path / "copy", COMMITTED)
        )
        assert copied == committed
