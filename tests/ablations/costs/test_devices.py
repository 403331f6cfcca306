"""What devices can do, and what share of it training reaches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ablations.costs.devices import find_device
from experiments.run.devices import nominal_peak
from transformer.errors import InputError


def test_without_a_measurement_the_share_is_the_papers(tmp_path: Path) -> None:
    device = find_device("h100", "auto", tmp_path)
    assert (device.name, device.peak, device.hardware.half) == ("H100", 989e12, True)
    # paper.md: 9.5e17 FLOPs of work where 12 hours of 8 P100 are 3.28e18 at their peak.
    assert device.share == pytest.approx(9.5e17 / 3.28e18, rel=0.01)
    assert device.share_from.startswith("assumed")


def test_a_measurement_on_the_device_goes_before(tmp_path: Path) -> None:
    found = {
        "size": "base",
        "device": "NVIDIA H200",
        "train": {"tflops": 197.8, "precision": "bf16"},
    }
    (tmp_path / "benchmark-base-gpu.json").write_text(json.dumps(found))
    device = find_device("H200", "auto", tmp_path)
    assert device.share == pytest.approx(0.2)
    assert device.share_from == "measured, see experiments/results/benchmark-base-gpu.json"
    assert find_device("H100", "auto", tmp_path).share_from.startswith("assumed")


def test_fp32_is_asked_for_or_all_there_is(tmp_path: Path) -> None:
    assert find_device("P100", "auto", tmp_path).peak == nominal_peak("P100-SXM2-16GB", "fp32")
    assert find_device("H100", "fp32", tmp_path).peak == 67e12


@pytest.mark.parametrize(
    ("name", "precision", "message"),
    [
        ("H10", "auto", "unknown device 'H10': did you mean 'H100'?"),
        ("P100", "bf16", "P100 has no nominal peak in bf16, which these runs use"),
    ],
)
def test_a_device_that_cannot_be_used(
    tmp_path: Path, name: str, precision: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        find_device(name, precision, tmp_path)  # pyright: ignore[reportArgumentType]
    assert str(caught.value) == message
