"""Loss, gradients and decoding of a device against fp32 on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.common import Size, config_of
from bench.workload import Workload
from tests.kernels.packed import random_heads, sentences_of
from transformer.config import Config, DecodingConfig, Precision, override
from transformer.data.batches import Batch
from transformer.decoding import decode_sentences
from transformer.kernels.sentence_attention import Sentences, can_serve, sentence_attention
from transformer.training.module import TransformerModule

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


@pytest.mark.parametrize("precision", LIMITS)
@pytest.mark.parametrize("row", ["base", "A-h1", "B-dk16", "E"])
def test_loss_and_gradient(
    row: str, precision: Precision, size: Size, device: torch.device, record_property: Record
) -> None:
    """Rows of Table 3 with every form of attention."""
    width = config_of(size, LOAD).model.d_model
    changes: dict[str, Any] = {
        "base": {},
        "A-h1": {"num_heads": 1, "d_k": width, "d_v": width},
        "B-dk16": {"d_k": 16, "d_v": 32},
        "E": {"positions": "learned"},
    }[row]
    (batch,) = LOAD.batches(1, CPU)
    compare(small_config(size, dropout=0.0, **changes), precision, batch, device, record_property)


def compare(
    config: Config, precision: Precision, batch: Batch, device: torch.device, record: Record
) -> None:
    """Compare loss and gradient of a model in that precision with those in fp32 on the CPU."""
    reference = TransformerModule(override(config, precision="fp32", compile=False))
    module = TransformerModule(override(config, precision=precision)).to(device)
    expected, expected_gradient = _loss_and_gradient(reference, batch)
    loss, gradient = _loss_and_gradient(module, batch.to(device))
    for_loss, for_gradient = LIMITS[precision]
    differences = _distance(loss, expected), _distance(gradient, expected_gradient)
    record("loss_differs_by", differences[0])
    record("gradient_differs_by", differences[1])
    assert differences[0] <= for_loss
    assert differences[1] <= for_gradient


def _loss_and_gradient(module: TransformerModule, batch: Batch) -> tuple[Tensor, Tensor]:
    smoothed, _ = module.training_loss(batch)
    gradients = torch.autograd.grad(smoothed, list(module.parameters()))
    return smoothed.detach().cpu(), torch.cat([g.flatten().double().cpu() for g in gradients])


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
