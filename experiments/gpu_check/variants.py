"""Each way to compute attention and the loss that the code has, timed on its own; decoding."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import product

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

_TURNS = 10
_SMOOTHING = 0.1
_BACKENDS = {
    "as torch chooses": None,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
# Relative, in bf16, against fp32.
_LIMIT = 2e-2


def attention_variants(device: torch.device, size: Size, lengths: Sequence[int]) -> Findings:
    """Forward and backward pass of one attention, by each backend, with both of our masks.

    A row has the time of a call, and of the first call with this shape.
    """
    findings = Findings()
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
        masks = {"padding": padding_mask(ids), "causal": causal_mask(length, device)}
        narrow = [x.to(torch.bfloat16).requires_grad_() for x in (query, key, value)]
        for (kind, mask), (name, backend) in product(masks.items(), backends.items()):
            expected = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
            _tried(
                findings,
                f"length {length}, {kind}, {name}",
                partial(_attend, narrow, mask, backend),
                expected,
                device,
            )
    return findings


def _attend(operands: list[Tensor], mask: Tensor, backend: SDPBackend | None) -> Tensor:
    with nullcontext() if backend is None else sdpa_kernel(backend):
        out = scaled_dot_product_attention(*operands, mask)
    torch.autograd.grad(out, operands, torch.ones_like(out))
    return out.detach()


def loss_variants(device: torch.device, size: Size) -> Findings:
    """Output projection and loss with their gradients, in bf16; plain fp32 is what is expected."""
    findings = Findings()
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

        _tried(findings, name, gradients, expected, device)
    return findings


def _tried(
    findings: Findings,
    what: str,
    function: Callable[[], Tensor],
    expected: Tensor,
    device: torch.device,
) -> None:
    """Time a variant and compare what it returns; note that it does not work, if so."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    wait_for(device)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a backend says at length why it cannot
            found = function()
        wait_for(device)
    except RuntimeError as error:
        why = str(error).strip().splitlines()[-1]
        findings.rows.append((what, "does not work", why))
        findings.figures[what] = {"error": str(error)}
        return
    first = time.perf_counter() - start
    (times,) = in_turn(range(_TURNS), lambda _: function(), device=device)
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    seconds = statistics.median(times)
    memory = "" if peak is None else f"{peak / 2**20:,.0f} MiB"
    figures = {"seconds": seconds, "first_seconds": first, "peak_memory_bytes": peak}
    findings.rows.append((what, f"{1e3 * seconds:.2f} ms", f"first {1e3 * first:.0f} ms", memory))
    distance = float((found.float() - expected).norm() / expected.norm())
    findings.figures[what] = figures | {"difference": distance}
    if not distance <= _LIMIT:
        findings.wrong.append(f"{what}: {distance:.1e} off, but {_LIMIT:.0e} is allowed")


def decoding_speed(device: torch.device, size: Size, sentences: int, rounds: int) -> Findings:
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
    (times,) = in_turn(range(rounds), decode, device=device)
    mean = sum(lengths) / len(lengths)
    spread = f"{min(times):.2f} to {max(times):.2f}"
    return Findings(
        rows=[
            (f"{sentences:,} sentences, s", f"{statistics.median(times):.2f}", spread),
            ("  the first time, s", f"{warm_up[0]:.2f}"),
            ("  word-pieces of a translation", f"{mean:.1f}"),
        ],
        figures={"seconds": times, "first_seconds": warm_up[0], "sentences": sentences}
        | {"mean_length": mean},
    )
