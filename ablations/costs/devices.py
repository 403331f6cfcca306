"""GPUs that need not be in this machine, and the disk space that a run needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.run.devices import nominal_peak
from transformer.config import Config, ModelConfig, Precision, TrainingConfig
from transformer.errors import InputError, unknown_name
from transformer.evaluation.counts import count_parameters, nominal_flops, training_flops
from transformer.files import read_json

# CUDA's name and the memory in GB, from NVIDIA's data sheets.
_GPUS = {
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
# Section 5.2: 100,000 steps of the base model in 12 hours on 8 P100.
_PAPER_DEVICE_SECONDS = 8 * 12 * 3_600
_PAPER_TOKENS = 25_000

# Weights and Adam's two moments, in fp32.
_WEIGHT_BYTES, _STATE_BYTES = 4, 12
# Resuming needs one checkpoint to fall back on, apart from the newest.
_MIN_CHECKPOINTS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A GPU or a CPU core, and whether it trains in bf16; ``memory_bytes`` where it is known."""

    name: str
    gpu: bool
    bf16: bool
    memory_bytes: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu(Device):
    """A GPU with its ``peak`` in FLOP/s and the ``share`` of it that training reaches.

    ``source`` says how the share is known.
    """

    peak: float
    share: float
    source: str


def find_gpu(name: str, precision: Precision, results: Path = _RESULTS) -> Gpu:
    """The GPU called ``name``, such as ``H100``, in upper or lower case.

    Args:
        precision: of the runs; ``auto`` is bf16 if the GPU supports it
        results: the folder of this project's results

    Raises:
        InputError: if the GPU is unknown or does not support the precision.
    """
    short = {known.lower(): known for known in _GPUS}.get(name.lower())
    if short is None:
        raise unknown_name("device", name, _GPUS)
    full, gigabytes = _GPUS[short]
    bf16 = precision != "fp32" and nominal_peak(full, "bf16") is not None
    peak = nominal_peak(full, "bf16" if bf16 else "fp32")
    if peak is None or (precision == "bf16" and not bf16):
        raise InputError(f"{short} has no nominal peak in {precision}, which these runs use")
    share, source = _benchmarked_share(full, results) or (
        _share_of_the_paper(),
        "assumed: it is what the paper's base model reached on 8 P100 in 12 hours",
    )
    return Gpu(
        name=short,
        gpu=True,
        bf16=bf16,
        memory_bytes=gigabytes * 1e9,
        peak=peak,
        share=share,
        source=source,
    )


def _share_of_the_paper() -> float:
    tokens = TrainingConfig().max_steps * _PAPER_TOKENS
    peak = nominal_peak("P100-SXM2-16GB", "fp32") or 0.0
    return training_flops(ModelConfig(), tokens, tokens) / nominal_flops(
        _PAPER_DEVICE_SECONDS, peak
    )


def _benchmarked_share(full: str, results: Path) -> tuple[float, str] | None:
    """The share that ``bench.train`` measured for the base model on such a GPU."""
    for path in sorted(results.glob("benchmark-*.json")):
        found = read_json(path)
        training = found.get("train")
        if found["device"] != full or found["size"] != "base" or training is None:
            continue
        peak = nominal_peak(full, training["precision"])
        if peak is not None:
            share = training["tflops"] * 1e12 / peak
            return share, f"measured, see experiments/results/{path.name}"
    return None


def checkpoint_bytes(config: Config) -> int:
    """Disk space of a run: the checkpoints it keeps and the best one's weights."""
    training = config.training
    kept = max(_MIN_CHECKPOINTS, training.average_checkpoints, training.also_average or 0)
    return count_parameters(config.model) * (_STATE_BYTES * kept + _WEIGHT_BYTES)
