"""The devices that a plan can be made for without having one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ablations.costs.memory import Hardware
from experiments.run.devices import nominal_peak
from transformer.config import ModelConfig, Precision, TrainingConfig
from transformer.errors import InputError, unknown_name
from transformer.evaluation.flops import nominal_flops, training_flops

# A word for each, its name as CUDA has it, and its memory in GB, by NVIDIA's data sheets.
_DEVICES = {
    "P100": ("Tesla P100-SXM2-16GB", 16),
    "V100": ("Tesla V100-SXM2-32GB", 32),
    "T4": ("Tesla T4", 16),
    "A100": ("NVIDIA A100-SXM4-80GB", 80),
    "A10": ("NVIDIA A10", 24),
    "A40": ("NVIDIA A40", 48),
    "L4": ("NVIDIA L4", 24),
    "L40S": ("NVIDIA L40S", 48),
    "H100": ("NVIDIA H100 80GB HBM3", 80),
    "H200": ("NVIDIA H200", 141),
    "RTX 3090": ("NVIDIA GeForce RTX 3090", 24),
    "RTX 4090": ("NVIDIA GeForce RTX 4090", 24),
}
_RESULTS = Path(__file__).parents[2] / "experiments" / "results"
# Section 5.2: 100,000 steps of base in 12 hours on 8 P100 of 9.5 TFLOP/s.
_PAPER_SECONDS = 8 * 12 * 3_600
_PAPER_TOKENS = 25_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """``peak`` is in FLOPs per second at best; ``share`` of it is what training reaches, and
    ``share_from`` says how that is known. ``memory_bytes`` is all it has.
    """

    name: str
    hardware: Hardware
    peak: float
    share: float
    share_from: str
    memory_bytes: float


def find_device(name: str, precision: Precision, results: Path = _RESULTS) -> Device:
    """The device of that name, such as ``H100``.

    Args:
        name: in short, in any case
        precision: of the runs; ``auto`` is bf16 where the device multiplies it
        results: the folder of the project's measurements

    Raises:
        InputError: for an unknown one, or one that does not multiply in that precision.
    """
    short = {word.lower(): word for word in _DEVICES}.get(name.lower())
    if short is None:
        raise unknown_name("device", name, _DEVICES)
    full, gigabytes = _DEVICES[short]
    half = precision != "fp32" and nominal_peak(full, "bf16") is not None
    peak = nominal_peak(full, "bf16" if half else "fp32")
    if peak is None or (precision == "bf16" and not half):
        raise InputError(f"{short} has no nominal peak in {precision}, which these runs use")
    share, source = _measured(full, results) or _papers()
    return Device(
        name=short,
        hardware=Hardware(gpu=True, half=half),
        peak=peak,
        share=share,
        share_from=source,
        memory_bytes=gigabytes * 1e9,
    )


def _papers() -> tuple[float, str]:
    steps = TrainingConfig().max_steps
    tokens = steps * _PAPER_TOKENS
    nominal = nominal_flops(_PAPER_SECONDS, nominal_peak("P100-SXM2-16GB", "fp32") or 0.0)
    share = training_flops(ModelConfig(), tokens, tokens) / nominal
    return share, "assumed: it is what the paper's base reached on the P100, 12 hours on 8"


def _measured(full: str, results: Path) -> tuple[float, str] | None:
    """By ``experiments benchmark`` on such a device, of the size of base before others."""
    for path in sorted(results.glob("benchmark-*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        training = found.get("train")
        if found["device"] != full or found["size"] != "base" or training is None:
            continue
        peak = nominal_peak(full, training["precision"])
        if peak is not None:
            return training[
                "tflops"
            ] * 1e12 / peak, f"measured, see experiments/results/{path.name}"
    return None
