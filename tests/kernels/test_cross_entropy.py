"""The loss and its gradients against torch's, in pieces and in bf16."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.kernels import cross_entropy
from transformer.training.loss import smoothed_cross_entropy

TOKENS, D_MODEL, VOCAB = 29, 7, 13
smoothings = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.37])


def inputs(tokens: int = TOKENS, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    states = torch.randn(tokens, D_MODEL, dtype=dtype, requires_grad=True)
    weight = torch.randn(VOCAB, D_MODEL, dtype=dtype, requires_grad=True)
    return states, weight, torch.randint(VOCAB, (tokens,))


def torchs(states: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(states @ weight.T, targets, label_smoothing=smoothing, reduction="sum")


def gradients(loss: Tensor, *of: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, of)


@smoothings
@pytest.mark.parametrize("rows_at_a_time", [0.5, 1, 5, TOKENS - 1, TOKENS, 1_000])
@pytest.mark.parametrize("tokens", [TOKENS, 0])
def test_both_sums_and_both_gradients_are_torchs(
    smoothing: float, rows_at_a_time: float, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without targets too, as on a rank without pairs, which takes the step all the same."""
    monkeypatch.setattr(cross_entropy, "_CPU_ELEMENTS", int(rows_at_a_time * VOCAB))
    states, weight, targets = inputs(tokens)
    smoothed, nll = smoothed_cross_entropy(states, weight, targets, smoothing, VOCAB)
    assert smoothed.requires_grad and not nll.requires_grad
    expected = torchs(states, weight, targets, smoothing)
    torch.testing.assert_close(smoothed, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(nll, torchs(states, weight, targets, 0.0), rtol=1e-12, atol=1e-12)
    # with a factor, as in a mean
    found = gradients(smoothed * 0.3, states, weight)
    torch.testing.assert_close(
        found, gradients(expected * 0.3, states, weight), rtol=1e-11, atol=1e-12
    )


@smoothings
@pytest.mark.parametrize("filling", [0.0, 7.0])
def test_padding_rows_have_no_effect(smoothing: float, filling: float) -> None:
    states, weight, targets = inputs()
    padded = torch.cat([weight.detach(), torch.full((3, D_MODEL), filling, dtype=weight.dtype)])
    padded.requires_grad_()
    found = smoothed_cross_entropy(states, padded, targets, smoothing, VOCAB)
    expected = smoothed_cross_entropy(states, weight, targets, smoothing, VOCAB)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    states_gradient, gradient = gradients(found[0], states, padded)
    assert not gradient[VOCAB:].any()
    real, wanted = (states_gradient, gradient[:VOCAB]), gradients(expected[0], states, weight)
    torch.testing.assert_close(real, wanted, rtol=1e-12, atol=1e-12)


def test_bf16_stays_near_fp32() -> None:
    states, weight, targets = inputs(tokens=211, dtype=torch.float32)
    expected, expected_nll = smoothed_cross_entropy(states, weight, targets, 0.1, VOCAB)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, nll = smoothed_cross_entropy(states, weight, targets, 0.1, VOCAB)
    assert found.dtype == nll.dtype == torch.float32
    assert found.item() != expected.item(), "the products did not run in bf16"
    assert math.isclose(found.item(), expected.item(), rel_tol=3e-3)
    assert math.isclose(nll.item(), expected_nll.item(), rel_tol=3e-3)
    for one, other in zip(
        gradients(found, states, weight), gradients(expected, states, weight), strict=True
    ):
        assert one.dtype == torch.float32
        assert F.cosine_similarity(one.flatten(), other.flatten(), dim=0).item() > 0.9998
        assert math.isclose(one.norm().item(), other.norm().item(), rel_tol=5e-3)


@pytest.mark.parametrize("size", [1e4, 1e8])
def test_huge_logits_stay_finite(size: float) -> None:
    states, weight, targets = inputs(dtype=torch.float32)
    smoothed, nll = smoothed_cross_entropy(states * size, weight, targets, 0.1, VOCAB)
    torch.testing.assert_close(smoothed, torchs(states * size, weight, targets, 0.1))
    torch.testing.assert_close(nll, torchs(states * size, weight, targets, 0.0))
    for gradient in gradients(smoothed, states, weight):
        assert gradient.isfinite().all()
