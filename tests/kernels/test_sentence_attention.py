"""Attention within sentences against torch's of each sentence by itself."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.kernels.packed import HEADS, KEYS, QUERIES, random_heads, sentences_of
from transformer.kernels import sentence_attention as kernel
from transformer.kernels.sentence_attention import can_serve, sentence_attention
from transformer.kernels.sentences import Sentences

kinds = pytest.mark.parametrize("causal", [True, False], ids=["causal", "cross"])
widths = pytest.mark.parametrize(("d_k", "d_v"), [(8, 8), (5, 11), (24, 7)])


def sentences(causal: bool) -> Sentences:
    return sentences_of(QUERIES, QUERIES if causal else KEYS, causal)


def operands(
    causal: bool, d_k: int = 5, d_v: int = 11, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    keys = sum(QUERIES if causal else KEYS)
    return [x.requires_grad_() for x in random_heads(sum(QUERIES), keys, d_k, d_v, dtype)]


def attend(given: list[Tensor], causal: bool) -> Tensor:
    query, key, value = given
    return sentence_attention(query, key, value, sentences(causal))


def torchs(given: list[Tensor], causal: bool) -> Tensor:
    """Each sentence by itself; zeros for queries without keys."""
    query, key, value = given
    lengths = QUERIES if causal else KEYS
    parts = (x.split(n, 2) for x, n in ((query, QUERIES), (key, lengths), (value, lengths)))
    found: list[Tensor] = []
    for q, k, v in zip(*parts, strict=True):
        if k.size(2) > 0:
            found.append(F.scaled_dot_product_attention(q, k, v, is_causal=causal))
        else:
            found.append(q.new_zeros(1, HEADS, q.size(2), value.size(3)))
    return torch.cat(found, dim=2)


def gradients(out: Tensor, of: list[Tensor], weights: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(out, of, weights.to(out.dtype))


@kinds
@widths
@pytest.mark.parametrize(
    ("dtype", "distance"),
    [(torch.float64, 1e-13), (torch.float32, 2e-6), (torch.bfloat16, 1e-2)],
)
def test_values_and_gradients_are_torchs_of_each_sentence(
    causal: bool, d_k: int, d_v: int, dtype: torch.dtype, distance: float
) -> None:
    given = operands(causal, d_k, d_v, dtype)
    exact = [x.detach().double().requires_grad_() for x in given]
    found, expected = attend(given, causal), torchs(exact, causal)
    assert found.dtype == dtype and found.shape == (1, HEADS, sum(QUERIES), d_v)
    weights = torch.randn_like(found)
    found = found, *gradients(found, given, weights)
    expected = expected, *gradients(expected, exact, weights)
    for one, other in zip(found, expected, strict=True):
        assert torch.dist(one.double(), other) <= distance * other.norm()


@kinds
def test_the_gradient_is_that_of_finite_differences(causal: bool) -> None:
    given = operands(causal, 2, 3)
    assert torch.autograd.gradcheck(lambda *x: attend([*x], causal), given, fast_mode=True)


@pytest.mark.parametrize(("queries", "keys"), [([4, 3], [0, 0]), ([0, 0], [5, 2])])
def test_a_side_without_tokens_is_no_error(queries: list[int], keys: list[int]) -> None:
    query, key, value = random_heads(sum(queries), sum(keys), 5, 11, torch.float64)
    given = [x.requires_grad_() for x in (query, key, value)]
    out = sentence_attention(query, key, value, sentences_of(queries, keys, causal=False))
    assert out.shape == (1, HEADS, sum(queries), 11) and not out.any()
    for gradient, of in zip(gradients(out, given, torch.ones_like(out)), given, strict=True):
        assert gradient.shape == of.shape and not gradient.any()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch 2.14's own
@kinds
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_torch_finds_the_operators_as_they_say_they_are(causal: bool, dtype: torch.dtype) -> None:
    """Shapes, strides, dtypes, no aliases, and gradients that a compiler can trace."""
    given = operands(causal, dtype=dtype)
    rows = [x.detach().squeeze(0).transpose(0, 1).requires_grad_() for x in given]
    torch.library.opcheck(kernel._attention, (*rows, *sentences(causal)))
    out, log_sums = kernel._attention(*rows, *sentences(causal))
    assert out.requires_grad and not log_sums.requires_grad
    kept = [x.detach() for x in (out, *rows, out, log_sums)]
    torch.library.opcheck(kernel._attention_gradient, (*kept, *sentences(causal)))


@kinds
@pytest.mark.parametrize("autocast", [True, False])
def test_compiled_it_is_one_graph_and_the_same_bits(causal: bool, autocast: bool) -> None:
    compiled: Any = torch.compile(
        sentence_attention, backend="aot_eager", fullgraph=True, dynamic=False
    )
    given = operands(causal, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = compiled(*given, sentences(causal))
        expected = attend(given, causal)
    assert found.stride() == expected.stride()
    weights = torch.randn_like(found)
    assert torch.equal(found, expected)
    for one, other in zip(
        gradients(found, given, weights), gradients(expected, given, weights), strict=True
    ):
        assert torch.equal(one, other)


@kinds
def test_autocast_narrows_what_torchs_attention_would(causal: bool) -> None:
    """Its operands and nothing inside; fp64 stays as it is."""
    query, key, value = given = operands(causal, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = attend([query, key, value.bfloat16()], causal)
        weights = torch.randn_like(found)
        found_gradients = gradients(found, given, weights)
    narrow = [x.detach().bfloat16().requires_grad_() for x in given]
    expected = attend(narrow, causal)
    assert found.dtype == torch.bfloat16 and torch.equal(found, expected)
    for one, other in zip(found_gradients, gradients(expected, narrow, weights), strict=True):
        assert one.dtype == torch.float32 and torch.equal(one, other.float())
    wide = [x.detach().double() for x in given]
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(wide, causal)
    torch.testing.assert_close(found, torchs(wide, causal), rtol=1e-12, atol=1e-12)


def test_different_dtypes_are_refused_as_by_torchs_attention() -> None:
    query, key, value = operands(True, dtype=torch.float32)
    with pytest.raises(TypeError, match=r"from torch\.float32 to torch\.float32 and torch\.bfl"):
        attend([query, key, value.bfloat16()], True)


def test_a_gpu_needs_triton_and_heads_of_at_most_128(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda", 1)
    monkeypatch.setattr(importlib.util, "find_spec", {"triton": object()}.get)
    assert can_serve(gpu, 128, 128) and can_serve(cpu, 512, 512)
    assert not can_serve(gpu, 129, 8) and not can_serve(gpu, 8, 129)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not can_serve(gpu, 8, 8) and can_serve(cpu, 512, 512)


needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


def offline(command: str, cache: Path) -> list[dict[str, Any]]:
    """What ``tests.kernels.triton_offline`` finds, in a process that uses Triton in this way."""
    environment = os.environ | {
        "TRITON_CACHE_DIR": str(cache),
        "TRITON_INTERPRET": str(int(command == "interpret")),
    }
    run = subprocess.run(
        [sys.executable, "-m", "tests.kernels.triton_offline", command],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.long
@pytest.mark.timeout(900)
@needs_triton
def test_the_triton_kernels_interpreted_are_the_plain_form(tmp_path: Path) -> None:
    cases = offline("interpret", tmp_path)
    assert len(cases) == 10
    for case in cases:
        limit = 5e-7 if case["dtype"] == "float32" else 1e-3
        assert len(case["distances"]) == 5, case
        assert all(distance < limit for distance in case["distances"]), case


@pytest.mark.long
@pytest.mark.timeout(900)
@needs_triton
def test_the_triton_kernels_compiled_for_hopper_spill_nothing_and_fit_twice(tmp_path: Path) -> None:
    """Of each kernel, into the 65,536 registers and 227 KiB of a multiprocessor of an H100."""
    kernels = offline("compile", tmp_path)
    assert len(kernels) == 3 * 9
    for found in kernels:
        assert found["target"] == "sm_90a"
        assert found["spilled"] == found["atomics"] == 0, found
        assert 2 * 32 * found["warps"] * found["registers"] <= 65_536, found
        assert 2 * found["shared"] <= 227 * 1_024, found
        assert (found["wgmma"] > 0) == (found["dtype"] == "bfloat16"), found
