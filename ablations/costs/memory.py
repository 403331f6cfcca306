"""The memory of a device at the peak of a training step, by a formula.

What autograd keeps is counted matrix by matrix, see :mod:`transformer.model.layers`: it grows with
the positions of a batch. A compiled model keeps less.
"""

from __future__ import annotations

from dataclasses import dataclass

from transformer.config import Config, ModelConfig
from transformer.evaluation.counts import count_parameters

# Weights, and Adam's two moments of each, in fp32; gradients are as large as the weights.
_STATE_BYTES, _GRADIENT_BYTES = 12, 4
_FLOAT = 4
# The loss works on so many logits at once (transformer/kernels/cross_entropy.py).
_GPU_LOGITS, _CPU_LOGITS = 2**28, 2**21
# Attention's weights, which only the plain products of a CPU keep, are as many as keys.
_LENGTH = 30
# The share of a batch's positions that hold real tokens (README, "Speed").
_FILL = 0.9


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    """What decides how much is kept. ``gpu`` has fused attention and one byte for each element
    of a mask; ``half`` says that products are in bf16.
    """

    gpu: bool
    half: bool

    @property
    def product(self) -> int:
        """Bytes of an operand of a product."""
        return 2 if self.half else _FLOAT

    @property
    def mask(self) -> int:
        """Bytes of an element of dropout's mask."""
        return 1 if self.gpu else _FLOAT


def training_bytes(config: Config, hardware: Hardware, devices: int = 1) -> int:
    """Peak bytes on each of ``devices`` that share a batch.

    The peak is where the backward pass begins, when all that was kept is there, or where it
    ends, when all gradients are: there the shared matrix has three, and their sum. DDP keeps a
    copy of the gradients from step to step.
    """
    model = config.model
    count = count_parameters(model)
    tokens = config.data.tokens_per_batch / devices
    kept = tokens / _FILL * _kept_bytes(model, hardware) + _loss_bytes(model, hardware, tokens)
    state = count * (_STATE_BYTES + (_GRADIENT_BYTES if devices > 1 else 0))
    if hardware.half:
        kept += count * hardware.product  # the weights in bf16, until the step ends
    gradients = _GRADIENT_BYTES * (count + 3 * model.vocab_size * model.d_model)
    return round(state + max(kept, gradients))


def _kept_bytes(model: ModelConfig, hardware: Hardware) -> float:
    """Of one source and one target position together."""
    width, heads = model.d_model, model.num_heads
    product, dropped = hardware.product, hardware.mask if model.dropout else 0
    # A norm keeps its input. What it gives is kept as the operand of products: once in fp32, and
    # in bf16 as a copy for each.
    norm = width * (_FLOAT + dropped)

    def operand(products: int) -> int:
        return width * product * (products if hardware.half else 1)

    weights = 0 if hardware.gpu else heads * _LENGTH * (_FLOAT + product * hardware.half)
    self_attention = 2 * heads * (model.d_k + model.d_v) * product + weights + operand(2)
    # The encoder's output is one operand for all layers in fp32, so it is left out there.
    memory = operand(1) if hardware.half else 0
    cross_attention = 2 * heads * (model.d_k + model.d_v) * product + weights + operand(1) + memory
    feed_forward = model.d_ff * product + operand(1)
    encoder = self_attention + feed_forward + 2 * norm
    decoder = self_attention + cross_attention + feed_forward + 3 * norm
    return model.num_layers * (encoder + decoder) + 2 * width * dropped


def _loss_bytes(model: ModelConfig, hardware: Hardware, tokens: float) -> float:
    """Some logits, their gradient where it is another matrix, and what the loss gives on."""
    logits = min(tokens * model.vocab_size, _GPU_LOGITS if hardware.gpu else _CPU_LOGITS)
    states = tokens * model.d_model * (_FLOAT + 2 * hardware.product)
    gradient = model.vocab_size * model.d_model * _FLOAT
    return logits * (_FLOAT + hardware.product * hardware.half) + states + gradient
