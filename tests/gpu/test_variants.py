"""Each way to compute attention and the loss, and compiled training."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.common import Size, config_of, in_turn, workload
from experiments.devices import peak_memory
from tests.gpu.test_equality import CPU, LOAD, Record, compare, small_config
from tests.gpu.test_training import record_training
from transformer.kernels.cross_entropy import chunked_cross_entropy
from transformer.model.attention import scaled_dot_product_attention
from transformer.model.encoder_decoder import causal_mask, padding_mask
from transformer.training.loss import smoothed_cross_entropy

_TURNS = 10
_SMOOTHING = 0.1
_BACKENDS = {
    "as torch chooses": None,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
# Relative, in bf16, against fp32.
_LIMIT = 2e-2
# After this, a compiled model is timed on the shapes that it is compiled for by then.
_COMPILING_SECONDS = 75.0


@pytest.mark.parametrize("backend", _BACKENDS)
@pytest.mark.parametrize("mask", ["padding", "causal"])
@pytest.mark.parametrize("length", [16, 32, 64, 128])
def test_attention(
    length: int, mask: str, backend: str, device: torch.device, record_property: Record
) -> None:
    """Forward and backward pass of one attention in bf16, with our masks."""
    if device.type == "cpu" and _BACKENDS[backend]:
        pytest.skip("attention on a CPU is made of our own products")
    config = config_of("base", workload(device))
    batch = config.data.tokens_per_batch // length
    # The strides are those that MultiHeadAttention makes.
    shape = (3, batch, length, config.model.num_heads, config.model.d_k)
    operands = torch.randn(shape, device=device).transpose(2, 3).unbind()
    ids = torch.ones(batch, length, dtype=torch.long, device=device)
    ids[::2, length - length // 4 :] = 0  # every other sentence is a quarter shorter
    masked = padding_mask(ids) if mask == "padding" else causal_mask(length, device)
    query, key, value = (x.to(torch.bfloat16).requires_grad_() for x in operands)

    def attend() -> Tensor:
        forced = _BACKENDS[backend]
        with nullcontext() if forced is None else sdpa_kernel(forced):
            out = scaled_dot_product_attention(query, key, value, masked)
        torch.autograd.grad(out, (query, key, value), torch.ones_like(out))
        return out.detach()

    try:
        attend()
    except RuntimeError as error:
        if _BACKENDS[backend] is None or isinstance(error, torch.AcceleratorError):
            raise
        pytest.skip(str(error).strip().splitlines()[-1])
    expected = F.scaled_dot_product_attention(*operands, attn_mask=masked)
    time_and_compare(attend, expected, device, record_property)


@pytest.mark.parametrize("form", ["in pieces", "plain", "compiled"])
def test_loss(form: str, size: Size, device: torch.device, record_property: Record) -> None:
    """Output projection and loss with their gradients in bf16, against plain ones in fp32."""
    skip_compiling(device if form == "compiled" else None)
    config = config_of(size, workload(device))
    vocab_size, d_model = config.model.vocab_size, config.model.d_model
    states = torch.randn(config.data.tokens_per_batch, d_model, device=device).requires_grad_()
    weight = (torch.randn(vocab_size, d_model, device=device) * d_model**-0.5).requires_grad_()
    targets = torch.randint(vocab_size, (len(states),), device=device)

    def plain(*_: object) -> tuple[Tensor]:
        logits = states @ weight.t()
        loss = F.cross_entropy(logits, targets, label_smoothing=_SMOOTHING, reduction="sum")
        return (loss,)

    forms: dict[str, Callable[..., tuple[Tensor, ...]]] = {
        "in pieces": chunked_cross_entropy,
        "plain": plain,
        "compiled": torch.compile(smoothed_cross_entropy, dynamic=False),
    }

    def gradients(function: Callable[..., tuple[Tensor, ...]]) -> Tensor:
        loss = function(states, weight, targets, _SMOOTHING, vocab_size)[0]
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, [states, weight])])

    def gradients_in_bf16() -> Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return gradients(forms[form])

    time_and_compare(gradients_in_bf16, gradients(plain), device, record_property)


def time_and_compare(
    function: Callable[[], Tensor], expected: Tensor, device: torch.device, record: Record
) -> None:
    """Time a function, and compare its result."""
    (first, *times) = in_turn(range(1 + _TURNS), lambda _: function(), device=device)[0]
    record("ms", 1e3 * statistics.median(times))
    record("ms_of_the_first_call", 1e3 * first)
    if device.type == "cuda":
        record("peak_memory_mib", (peak_memory(device) or 0) / 2**20)
    difference = float((function().float() - expected).norm() / expected.norm())
    record("differs_by", difference)
    assert difference <= _LIMIT


def skip_compiling(device: torch.device | None) -> None:
    """Skip a test on a CPU."""
    if device is not None and device.type == "cpu":
        pytest.skip("compiling takes minutes on a CPU")


def test_compiled_loss_and_gradient(
    size: Size, device: torch.device, record_property: Record
) -> None:
    skip_compiling(device)
    (batch,) = LOAD.batches(1, CPU)
    compare(small_config(size, dropout=0.0, compile=True), "bf16", batch, device, record_property)


def test_compiled_training(timed_size: Size, device: torch.device, record_property: Record) -> None:
    """The same as uncompiled, and how many graphs were compiled for how many shapes."""
    skip_compiling(device)
    from torch._dynamo.utils import counters  # takes seconds

    torch.compiler.reset()
    counters.clear()
    limit = _COMPILING_SECONDS
    record_training(timed_size, device, record_property, compile=True, warm_up_seconds=limit)
    record_property("graphs", counters["stats"]["unique_graphs"])
    torch.compiler.reset()
