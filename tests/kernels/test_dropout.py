"""Dropout: its exact rate and scale, and the same mask for the same seed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from transformer.kernels.dropout import Dropout

PRIME = 1_000_003


def mask(p: float, *shape: int, seed: int = 5) -> Tensor:
    """1 where an element survives, else 0."""
    torch.manual_seed(seed)
    return Dropout(p)(torch.ones(*shape)).ne(0).double()


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.93])
def test_the_rate_is_exact(p: float) -> None:
    dropped = PRIME - mask(p, PRIME).sum().item()
    assert abs(dropped - p * PRIME) < 4.5 * math.sqrt(PRIME * p * (1 - p))


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_neighbours_are_dropped_independently(p: float) -> None:
    """One random number serves four elements, so distances up to four are tested."""
    gone = 1 - mask(p, PRIME)
    for distance in range(1, 5):
        both = (gone[distance:] * gone[:-distance]).mean().item()
        assert abs(both - p * p) < 4.5 * math.sqrt(p * p * (1 - p * p) / PRIME)


def test_survivors_are_scaled_to_keep_the_mean() -> None:
    x = torch.rand(101, 103, dtype=torch.float64) + 0.5
    dropped = Dropout(0.3)(x)
    survivors = dropped.ne(0)
    torch.testing.assert_close(dropped[survivors], x[survivors] / 0.7, rtol=2e-5, atol=0)


def test_the_gradient_goes_through_the_same_mask() -> None:
    x = torch.rand(11, 13, requires_grad=True)
    y = Dropout(0.5)(x)
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(y.detach(), x.detach() * x.grad)
    assert x.grad.eq(0).any() and x.grad.ne(0).any()


@pytest.mark.parametrize("shape", [(1,), (2,), (3,), (5,), (3, 5, 7), (0, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_shape_and_dtype_are_kept(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    dropped = Dropout(0.4)(torch.ones(shape, dtype=dtype))
    assert dropped.shape == shape and dropped.dtype == dtype


def test_no_rate_and_evaluation_change_nothing_and_draw_nothing() -> None:
    x, before = torch.randn(7, 11), torch.get_rng_state()
    assert torch.equal(Dropout(0.0)(x), x)
    assert torch.equal(Dropout(0.9).eval()(x), x)
    assert torch.equal(torch.get_rng_state(), before)
