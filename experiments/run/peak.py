"""What devices do at best, by their makers, for FLOPs as the paper counted them."""

from __future__ import annotations

import re

from transformer.config import Precision

# Names as CUDA has them, without the brand; TFLOP/s of fp32 outside tensor cores, and of dense bf16
# with sums in fp32, where there is any. Parts of a GPU (MIG) and those of laptops are not the same.
_PEAKS: dict[str, tuple[float, float | None]] = {
    r"K80": (2.8, None),
    r"K40[cmst]?": (3.7, None),
    r"M40( 24GB)?": (6.0, None),
    r"P100-\w+-\d+GB": (9.5, None),
    r"V100-SXM2-\d+GB": (15.7, None),
    r"V100-PCIE-\d+GB": (14.0, None),
    r"T4": (8.1, None),
    r"A100-\w+-\d+GB|A100 80GB PCIe": (19.5, 312.0),
    r"A10": (31.2, 125.0),
    r"A40": (37.4, 149.7),
    r"L4": (30.3, 121.0),
    r"L40S": (91.6, 362.0),
    r"H100 80GB HBM3|H200": (67.0, 989.0),
    r"H100 PCIe": (51.0, 756.0),
    r"GeForce RTX 3090": (35.6, 71.0),
    r"GeForce RTX 4090": (82.6, 165.2),
}


def nominal_peak(device: str, precision: Precision) -> float | None:
    """Operations per second of ``device`` at best in ``precision``; None where none are known.

    Those of the paper's own GPUs, K80 to P100, are its footnote 5; the others are from NVIDIA's
    data sheets and architecture whitepapers, without sparsity. (Lightning's table lacks the P100,
    and does not know an H200 by its name.) CPUs have no such figure that all agree on.

    Args:
        device: its name as CUDA has it
        precision: ``bf16`` or ``fp32``
    """
    name = re.sub(r"^(NVIDIA )?(Tesla )?", "", device)
    for pattern, (fp32, bf16) in _PEAKS.items():
        if re.fullmatch(pattern, name):
            tflops = bf16 if precision == "bf16" else fp32
            return None if tflops is None else 1e12 * tflops
    return None
