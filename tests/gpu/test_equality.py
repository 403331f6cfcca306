"""Loss, gradients and decoding of a device against a CPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ablations.tables.scales import SMALL
from ablations.tables.table3 import TABLE
from bench.common import Size, config_of
from bench.workload import Workload, uncompiled
from tests.kernels.packed import random_heads, sentences_of
from transformer.config import Config, DecodingConfig, Precision, override
from transformer.data.batches import Batch
from transformer.decoding import decode_sentences
from transformer.kernels.sentence_attention import can_serve, sentence_attention
from transformer.kernels.sentences import Sentences
from transformer.training.module import TransformerModule
from transformer.training.packing import PackedBatch
from transformer.training.whole_step import WholeStep

Record = Callable[[str, object], None]

CPU = torch.device("cpu")
LOAD = Workload(text="multi30k", vocab_size=1_000, tokens_per_batch=1_000)
# Relative differences of the loss and of the whole gradient that rounding may cause.
LIMITS: dict[Precision, tuple[float, float]] = {"fp32": (1e-5, 1e-3), "bf16": (1e-2, 1e-1)}
# Sentences whose best translations are as good as tied may differ.
_DECODED_DIFFERENTLY = 0.02
_SENTENCES = {"cuda": 100, "cpu": 8}


def small_config(size: Size, **changes: Any) -> Config:
    """A model of two layers of that size, in fp32 unless ``changes`` say otherwise."""
    return override(config_of(size, LOAD), **{"num_layers": 2, "precision": "fp32", **changes})


@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.name)
def test_loss_and_gradient(row: Any, device: torch.device, record_property: Record) -> None:
    """Rows of Table 3 against fp64, padded and packed; on a GPU in the paper's widths."""
    scale = replace(SMALL, divide_widths=1) if device.type == "cuda" else SMALL
    config = override(TABLE.configure(row, scale), dropout=0.0, tokens_per_batch=500)
    load = replace(LOAD, vocab_size=config.model.vocab_size, tokens_per_batch=500)
    (batch,) = load.batches(1, CPU)
    expected = _loss_and_gradient(config, batch, torch.float64)
    for precision, limits in LIMITS.items():
        other = override(config, precision=precision)
        for packs in (False, True):
            if packs and not can_serve(device, config.model.d_k, config.model.d_v):
                continue
            found = _loss_and_gradient(other, batch, device, packs=packs)
            differences = [_distance(*pair) for pair in zip(found, expected, strict=True)]
            name = f"{precision}_{'packed' if packs else 'padded'}_differs_by"
            record_property(name, dict(zip(("loss", "gradient"), differences, strict=True)))
            assert differences[0] <= limits[0] and differences[1] <= limits[1], name


@pytest.mark.seconds(150)
def test_compiled_loss_and_gradient(
    size: Size, device: torch.device, record_property: Record
) -> None:
    """Of packed sentences, as training on one GPU computes them; with dropout, the same twice."""
    config = small_config(size, num_layers=1, dropout=0.0, precision="bf16")
    (batch,) = LOAD.batches(1, CPU)
    expected = _loss_and_gradient(config, batch, torch.float64)
    with uncompiled() if device.type == "cpu" else nullcontext():
        found = _of_packed(config, batch, device)()
        differences = [_distance(*pair) for pair in zip(found, expected, strict=True)]
        compute = _of_packed(override(config, dropout=0.1), batch, device)
        twice: list[Tensor] = []
        for _ in range(2):
            torch.manual_seed(7)
            twice.append(compute()[1])
    record_property("loss_differs_by", differences[0])
    record_property("gradient_differs_by", differences[1])
    record_property("differs_the_second_time_by", _distance(twice[1], twice[0]))
    assert differences[0] <= LIMITS["bf16"][0] and differences[1] <= LIMITS["bf16"][1]
    assert torch.equal(*twice)


def _loss_and_gradient(
    config: Config, batch: Batch, where: torch.device | torch.dtype, packs: bool = False
) -> tuple[Tensor, Tensor]:
    """The smoothed loss and its gradient, on a device or in a dtype on the CPU."""
    if packs:
        assert isinstance(where, torch.device)
        with uncompiled():
            return _of_packed(config, batch, where)()
    if isinstance(where, torch.dtype):
        config = override(config, precision="fp32")  # without autocast
    module = TransformerModule(override(config, compile=False)).to(where)
    return _with_gradient(module.sums(batch.to(module.device)), module)


def _of_packed(
    config: Config, batch: Batch, device: torch.device
) -> Callable[[], tuple[Tensor, Tensor]]:
    """Computes loss and gradient of the batch's sentences laid end to end."""
    module = TransformerModule(config).to(device)
    whole = WholeStep(module.model, config, packs=True)
    packed = whole.prepare(batch)
    assert isinstance(packed, PackedBatch)
    inputs = packed.to(device).tensors
    return lambda: _with_gradient(whole.sums(inputs), module)


def _with_gradient(sums: tuple[Tensor, Tensor], module: TransformerModule) -> tuple[Tensor, Tensor]:
    gradients = torch.autograd.grad(sums[0], list(module.parameters()))
    return sums[0].detach().cpu(), torch.cat([g.flatten().double().cpu() for g in gradients])


def _distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize(
    ("dtype", "d_k", "d_v", "causal"),
    [
        (torch.bfloat16, 64, 64, True),
        (torch.bfloat16, 64, 64, False),
        (torch.bfloat16, 16, 32, True),
        (torch.bfloat16, 128, 128, False),
        (torch.float32, 8, 8, True),
        (torch.float32, 64, 64, False),
    ],
)
def test_attention_within_sentences(
    dtype: torch.dtype,
    d_k: int,
    d_v: int,
    causal: bool,
    device: torch.device,
    record_property: Record,
) -> None:
    """Against fp64 on the CPU, and the same bits twice."""
    if not can_serve(device, d_k, d_v):
        pytest.skip("Triton is not installed")
    lengths = torch.randint(0, 90, (2, 40 if device.type == "cuda" else 4)).tolist()
    sentences = sentences_of(lengths[0], lengths[0 if causal else 1], causal)
    query, key, value = random_heads(
        sum(lengths[0]), len(sentences.key_sentences), d_k, d_v, torch.float64
    )
    given = [x.to(dtype) for x in (query, key, value)]
    there = sentences._make(x.to(device) if isinstance(x, Tensor) else x for x in sentences)
    found, again = (_attend([x.to(device) for x in given], there) for _ in range(2))
    expected = _attend([x.double() for x in given], sentences)
    names = ("values", "query", "key", "value")
    for name, one, other, exact in zip(names, found, again, expected, strict=True):
        assert torch.equal(one, other), name
        difference = _distance(one.double().cpu(), exact)
        record_property(f"{name}_differ_by", difference)
        assert difference <= {torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype], name


def _attend(given: list[Tensor], sentences: Sentences) -> list[Tensor]:
    """Values, and the gradients of query, key and value for a gradient of the values themselves."""
    query, key, value = (x.requires_grad_() for x in given)
    found = sentence_attention(query, key, value, sentences)
    return [found, *torch.autograd.grad(found.square().sum() / 2, (query, key, value))]


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_decoding(
    dtype: torch.dtype,
    beam_size: int,
    size: Size,
    device: torch.device,
    record_property: Record,
) -> None:
    reference = TransformerModule(small_config(size)).model.to(dtype).eval()
    torch.manual_seed(1)
    with torch.no_grad():  # far from the initial values, so that translations vary
        for parameter in reference.parameters():
            parameter.add_(torch.randn_like(parameter) * parameter.std().nan_to_num(0.1))
    pairs, count = LOAD.pairs(_SENTENCES[device.type]), _SENTENCES[device.type]
    sources = [pairs[pair][0].tolist() for pair in range(count)]
    config = DecodingConfig(beam_size=beam_size, max_extra_length=10)
    expected = dict(decode_sentences(reference, sources, config))
    found = dict(decode_sentences(deepcopy(reference).to(device), sources, config))
    share = sum(found[row] != expected[row] for row in range(count)) / count
    record_property("share_of_sentences_that_differ", share)
    assert len({tuple(tokens) for tokens in expected.values()}) > count / 2
    assert share <= _DECODED_DIFFERENTLY
