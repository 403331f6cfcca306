"""Each way to compute attention and the loss, timed on its own; beam search of a test set."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.benchmark.timing import in_turn, wait_for
from experiments.benchmark.workload import Size, config_of, workload
from experiments.gpu_check.findings import Findings
from transformer.config import DecodingConfig
from transformer.decoding import decode_sentences
from transformer.kernels.cross_entropy import chunked_cross_entropy
from transformer.model.attention import scaled_dot_product_attention
from transformer.model.encoder_decoder import Transformer, causal_mask, padding_mask
from transformer.training.loss import smoothed_cross_entropy

Operands = tuple[Tensor, Tensor, Tensor]

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


def attention_variants(
    device: torch.device, findings: Findings, size: Size, lengths: Sequence[int]
) -> None:
    """Forward and backward pass of one attention in bf16: each backend with each of our masks.

    Flash attention takes no mask, so it gets what the masks stand for: packed sentences, and the
    causal mask's own flag. A row has the time of a call, and of the first one with this shape.
    """
    config = config_of(size, workload(device))
    heads, width, tokens = config.model.num_heads, config.model.d_k, config.data.tokens_per_batch
    # On a CPU our own products are used, whatever torch would choose.
    backends = _BACKENDS if device.type == "cuda" else {"our own": None}
    for length in lengths:
        # The strides are those that MultiHeadAttention makes.
        shape = (3, tokens // length, length, heads, width)
        query, key, value = torch.randn(shape, device=device).transpose(2, 3).unbind()
        ids = torch.ones(tokens // length, length, dtype=torch.long, device=device)
        ids[::2, length - length // 4 :] = 0  # every other sentence is a quarter shorter
        query_, key_, value_ = (x.to(torch.bfloat16).requires_grad_() for x in (query, key, value))
        narrow: Operands = query_, key_, value_
        variants: dict[str, tuple[Tensor, Callable[[], Tensor]]] = {}
        for kind, mask in (("padding", padding_mask(ids)), ("causal", causal_mask(length, device))):
            expected = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
            for name, backend in backends.items():
                variants[f"{kind}, {name}"] = expected, partial(_attend, narrow, mask, backend)
            if device.type == "cuda" and kind == "causal":
                variants["causal, flash"] = expected, partial(_attend_causally, narrow)
            elif device.type == "cuda":
                packed, starts = pack(narrow, ids.ne(0))
                expected = expected.transpose(1, 2)[ids.ne(0)]
                attend = partial(attend_packed, packed, starts, length)
                variants["padding, flash packed"] = expected, attend
        for name, (expected, attend) in variants.items():
            _time_variant(f"length {length}, {name}", findings, attend, expected, device)


def _attend(operands: Operands, mask: Tensor, backend: SDPBackend | None) -> Tensor:
    with nullcontext() if backend is None else sdpa_kernel(backend):
        out = scaled_dot_product_attention(*operands, mask)
    return _with_gradient(out, operands)


def _attend_causally(operands: Operands) -> Tensor:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        out = F.scaled_dot_product_attention(*operands, is_causal=True)
    return _with_gradient(out, operands)


def pack(operands: Operands, real: Tensor) -> tuple[Operands, Tensor]:
    """The tokens that are not padding, one after another, and where each sentence begins.

    Args:
        operands: ``(batch, num_heads, length, d_k)`` each
        real: ``(batch, length)``, which positions are not padding

    Returns:
        ``(tokens, num_heads, d_k)`` each, and ``(batch + 1,)``
    """
    query, key, value = (x.detach().transpose(1, 2)[real].requires_grad_() for x in operands)
    return (query, key, value), F.pad(real.sum(1).cumsum(0), (1, 0)).to(torch.int32)


def attend_packed(operands: Operands, starts: Tensor, longest: int) -> Tensor:
    """Attention of packed sentences, which need no mask."""
    from torch.nn.attention import varlen

    out = varlen.varlen_attn(*operands, starts, starts, longest, longest)
    assert isinstance(out, Tensor)
    return _with_gradient(out, operands)


def _with_gradient(out: Tensor, operands: Operands) -> Tensor:
    torch.autograd.grad(out, operands, torch.ones_like(out))
    return out.detach()


def loss_variants(device: torch.device, findings: Findings, size: Size) -> None:
    """Output projection and loss with their gradients, in bf16; plain fp32 is what is expected."""
    config = config_of(size, workload(device))
    vocab_size, d_model = config.model.vocab_size, config.model.d_model
    states = torch.randn(config.data.tokens_per_batch, d_model, device=device).requires_grad_()
    weight = (torch.randn(vocab_size, d_model, device=device) * d_model**-0.5).requires_grad_()
    targets = torch.randint(vocab_size, (len(states),), device=device)

    def plain() -> Tensor:
        logits = states @ weight.t()
        return F.cross_entropy(logits, targets, label_smoothing=_SMOOTHING, reduction="sum")

    arguments = states, weight, targets, _SMOOTHING, vocab_size
    variants: dict[str, Callable[[], Tensor]] = {
        "in pieces": lambda: chunked_cross_entropy(*arguments)[0],
        "torch's own": plain,
    }
    if device.type == "cuda":
        compiled = torch.compile(smoothed_cross_entropy, dynamic=False)
        variants["compiled"] = lambda: compiled(*arguments)[0]
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(plain(), [states, weight])])
    for name, variant in variants.items():

        def gradients(variant: Callable[[], Tensor] = variant) -> Tensor:
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = variant()
            found = torch.autograd.grad(loss, [states, weight])
            return torch.cat([g.flatten() for g in found])

        _time_variant(name, findings, gradients, expected, device)


def _time_variant(
    name: str,
    findings: Findings,
    function: Callable[[], Tensor],
    expected: Tensor,
    device: torch.device,
) -> None:
    """Time a variant and compare its result, unless an earlier call has; or say why it fails."""
    if name in findings.rows:
        return
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    wait_for(device)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a backend says at length why it cannot
            found = function()
        wait_for(device)
    except torch.AcceleratorError:
        raise  # the GPU's state is lost, and with it all that follows in this process
    except (RuntimeError, ImportError) as error:
        why = str(error).strip().splitlines()[-1]
        findings.add(name, "does not work", why, figures={"error": str(error)})
        return
    first = time.perf_counter() - start
    (times,) = in_turn(range(_TURNS), lambda _: function(), device=device)
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    seconds = statistics.median(times)
    difference = float((found.float() - expected).norm() / expected.norm())
    if not difference <= _LIMIT:
        findings.problems[name] = f"{name}: {difference:.1e} off, but {_LIMIT:.0e} is allowed"
    findings.add(
        name,
        f"{1e3 * seconds:.2f} ms",
        f"first {1e3 * first:.0f} ms",
        "" if peak is None else f"{peak / 2**20:,.0f} MiB",
        figures={
            "seconds": seconds,
            "first_seconds": first,
            "peak_memory_bytes": peak,
            "difference": difference,
        },
    )


def decoding_speed(
    device: torch.device, findings: Findings, size: Size, sentences: int, rounds: int
) -> None:
    """Beam search, beam 4, of as many sentences of news as newstest2014 has.

    The weights are untrained and never end a sentence, so translations are as long as their
    sources, which is about what a trained model writes.
    """
    config = config_of(size, workload(device))
    torch.manual_seed(1)
    model = Transformer(config.model).to(device)
    pairs = workload(device).pairs(sentences)
    sources = [pairs[pair][0].tolist() for pair in range(sentences)]
    lengths: list[int] = []

    def decode(_: int) -> None:
        found = decode_sentences(model, sources, DecodingConfig(beam_size=4, max_extra_length=0))
        lengths.extend(len(hypothesis) for _, hypothesis in found)

    (warm_up,) = in_turn([0], decode, device=device)
    findings.add("the first time, s", f"{warm_up[0]:.2f}", figures=warm_up[0])
    (times,) = in_turn(range(rounds), decode, device=device)
    spread = f"{min(times):.2f} to {max(times):.2f}"
    name = f"{sentences:,} sentences, s"
    findings.add(name, f"{statistics.median(times):.2f}", spread, figures=times)
    mean = sum(lengths) / len(lengths)
    findings.add("word-pieces of a translation", f"{mean:.1f}", figures=mean)
