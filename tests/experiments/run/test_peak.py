"""Nominal peaks by the names that CUDA gives."""

from __future__ import annotations

import pytest

from experiments.run.devices import nominal_peak


@pytest.mark.parametrize(
    ("device", "fp32", "bf16"),
    [
        ("Tesla K80", 2.8e12, None),
        ("Tesla P100-SXM2-16GB", 9.5e12, None),
        ("Tesla V100-PCIE-32GB", 14.0e12, None),
        ("NVIDIA A100-SXM4-40GB", 19.5e12, 312e12),
        ("NVIDIA A100 80GB PCIe", 19.5e12, 312e12),
        ("NVIDIA H100 80GB HBM3", 67e12, 989e12),
        ("NVIDIA H100 PCIe", 51e12, 756e12),
        ("NVIDIA H200", 67e12, 989e12),
        ("NVIDIA L4", 30.3e12, 121e12),
        ("NVIDIA GeForce RTX 4090", 82.6e12, 165.2e12),
        # others than those whose names they begin with
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None, None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None, None),
        ("NVIDIA A10G", None, None),
        ("Intel(R) Xeon(R) Processor @ 2.50GHz, 2 threads", None, None),
    ],
)
def test_the_peak_is_that_of_the_device_and_the_precision(
    device: str, fp32: float | None, bf16: float | None
):
    assert nominal_peak(device, "fp32") == fp32
    assert nominal_peak(device, "bf16") == bf16
