"""The time of runs by those whose time is known, and by a GPU's name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ablations.costs.speed import Timing, nominal_speed, predict, until_the_last
from ablations.tables.scales import PAPER
from ablations.tables.table3 import BASE, TABLE
from experiments.devices import nominal_peak
from tests.ablations.samples import TINY
from transformer.config import Config, Precision, override
from transformer.errors import InputError
from transformer.evaluation.counts import run_flops, step_flops

RESULTS = Path(__file__).parents[3] / "experiments" / "results"


def config(steps: int = 1_000, **changes: int) -> Config:
    return override(TINY.apply(BASE), max_steps=steps, **changes)


def test_flops_of_the_papers_base_and_big_are_as_published() -> None:
    # paper.md: 9.5e17 FLOPs for base, 9.7e18 for big.
    by_name = {row.name: TABLE.configure(row, PAPER) for row in TABLE.rows}
    assert run_flops(by_name["base"]) == pytest.approx(9.5e17, rel=0.02)
    assert run_flops(by_name["big"]) == pytest.approx(9.7e18, rel=0.05)


def test_one_known_run_predicts_others_in_proportion() -> None:
    assert predict(config(), []) is None
    assert predict(config(3_000), [Timing(config(), 10.0)]) == pytest.approx(30.0)


def test_the_fixed_time_per_step_is_told_apart_from_the_time_per_flop() -> None:
    small, large = config(), config(d_ff=1_024)

    def seconds(c: Config) -> float:
        return c.training.max_steps * (0.01 + 1e-10 * step_flops(c))

    known = [Timing(c, seconds(c)) for c in (small, large)]
    other = config(2_000, d_ff=512)
    assert predict(other, known) == pytest.approx(seconds(other))


def test_larger_models_that_were_faster_predict_no_negative_time() -> None:
    known = [Timing(config(), 20.0), Timing(config(d_ff=1_024), 10.0)]
    assert predict(config(d_ff=8_192), known) == pytest.approx(15.0)


def test_waiting_runs_go_to_the_next_free_place() -> None:
    assert until_the_last([4.0], [10.0] * 3, places=2) == pytest.approx(20.0)
    assert until_the_last([4.0, 7.0], [], places=2) == 7.0


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("H100", "fp32", 67e12),
        *((name, "auto", nominal_peak(name, "fp32")) for name in ("P100", "V100", "T4")),
    ],
)
def test_in_fp32_a_gpu_reaches_the_share_of_its_peak_that_the_papers_did(
    name: str, precision: Precision, peak: float
) -> None:
    given = override(config(), precision=precision)
    found = nominal_speed(name, {"base": given})
    assert found.device == name and found.basis.endswith(" TFLOP/s in fp32")
    # paper.md: 9.5e17 FLOPs of work where 12 hours of 8 P100 are 3.28e18 at their peak.
    share = run_flops(given) / found.known[0].seconds / peak
    assert share == pytest.approx(9.5e17 / 3.28e18, rel=0.01)


@pytest.mark.parametrize(("name", "slower"), [("h100", 1.0), ("A100", 989 / 312)])
def test_in_bf16_a_gpu_is_as_fast_as_was_measured(name: str, slower: float) -> None:
    lines = (RESULTS / "gpu-h200.jsonl").read_text(encoding="utf-8").splitlines()
    measured = {x["test"]: x.get("ms_per_step") for x in map(json.loads, lines) if "test" in x}
    found = nominal_speed(name, {row.name: TABLE.configure(row, PAPER) for row in TABLE.rows})
    assert found.basis.endswith(" TFLOP/s in bf16")
    for size, timing in (("base", found.known[0]), ("big", found.known[-1])):
        step = 1e3 * timing.seconds / timing.config.training.max_steps
        expected = measured[f"test_training.py::test_training[{size}]"]
        assert step == pytest.approx(slower * expected, rel=0.01)


@pytest.mark.parametrize(("name", "precision"), [("H10", "fp32"), ("P100", "bf16")])
def test_a_device_without_a_known_peak_is_refused(name: str, precision: Precision) -> None:
    with pytest.raises(InputError, match=f"no nominal peak of '{name}' in {precision} is known"):
        nominal_speed(name, {"base": override(config(), precision=precision)})
