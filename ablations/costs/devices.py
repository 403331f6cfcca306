"""GPUs that need not be in this machine, and the memory and disk space that a run needs."""

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

# Weights and Adam's two moments, in fp32; gradients are as large as the weights.
_WEIGHT_BYTES, _STATE_BYTES, _GRADIENT_BYTES = 4, 12, 4
_FLOAT_BYTES = 4
# The loss computes this many logits at a time (transformer/training/loss.py).
_GPU_LOGITS, _CPU_LOGITS = 2**28, 2**21
# Keys per position. Only a CPU, whose attention is not fused, keeps the attention weights.
_SENTENCE_LENGTH = 30
# The share of a batch's positions that are not padding (docs/figures.md).
_FILL = 0.9
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
        results: the folder of this project's benchmarks

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
    """The share that ``experiments benchmark`` measured for the base model on such a GPU."""
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


def training_bytes(config: Config, device: Device, ranks: int = 1) -> int:
    """Peak memory on each of ``ranks`` devices that share a batch, without ``torch.compile``.

    The peak is at the start of the backward pass, when all activations are kept, or at its end,
    when all gradients exist: the shared embedding then has three of them, and their sum. DDP
    keeps a copy of the gradients between steps.
    """
    model = config.model
    count = count_parameters(model)
    tokens = config.data.tokens_per_batch / ranks
    kept = tokens / _FILL * _activation_bytes(model, device) + _loss_bytes(model, device, tokens)
    state = count * (_STATE_BYTES + (_GRADIENT_BYTES if ranks > 1 else 0))
    if device.bf16:
        kept += count * _operand_bytes(device)  # the weights in bf16, until the step ends
    gradients = _GRADIENT_BYTES * (count + 3 * model.vocab_size * model.d_model)
    return round(state + max(kept, gradients))


def _operand_bytes(device: Device) -> int:
    """Bytes of one number in a matrix product."""
    return 2 if device.bf16 else _FLOAT_BYTES


def _activation_bytes(model: ModelConfig, device: Device) -> float:
    """What autograd keeps of one source and one target position, see ``transformer.model``."""
    width, heads, product = model.d_model, model.num_heads, _operand_bytes(device)
    # A GPU stores a dropout mask in bytes, a CPU in floats.
    mask = (1 if device.gpu else _FLOAT_BYTES) if model.dropout else 0
    # A norm keeps its input. Its output is kept as an operand: once in fp32, and in bf16 as one
    # copy for each product.
    norm = width * (_FLOAT_BYTES + mask)

    def operand(products: int) -> int:
        return width * product * (products if device.bf16 else 1)

    weights = 0 if device.gpu else heads * _SENTENCE_LENGTH * (_FLOAT_BYTES + product * device.bf16)
    self_attention = 2 * heads * (model.d_k + model.d_v) * product + weights + operand(2)
    # In fp32 the encoder's output is one operand for all layers, small enough to leave out.
    memory = operand(1) if device.bf16 else 0
    cross_attention = 2 * heads * (model.d_k + model.d_v) * product + weights + operand(1) + memory
    feed_forward = model.d_ff * product + operand(1)
    encoder = self_attention + feed_forward + 2 * norm
    decoder = self_attention + cross_attention + feed_forward + 3 * norm
    return model.num_layers * (encoder + decoder) + 2 * width * mask


def _loss_bytes(model: ModelConfig, device: Device, tokens: float) -> float:
    """Some logits and their gradient, and the gradients of the decoder's output and the matrix."""
    product = _operand_bytes(device)
    logits = min(tokens * model.vocab_size, _GPU_LOGITS if device.gpu else _CPU_LOGITS)
    states = tokens * model.d_model * (_FLOAT_BYTES + 2 * product)
    gradient = model.vocab_size * model.d_model * _FLOAT_BYTES
    return logits * (_FLOAT_BYTES + product * device.bf16) + states + gradient
