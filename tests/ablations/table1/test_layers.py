"""The layers, their FLOPs and steps, against formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ablations.table1 import paper
from ablations.table1.layers import RestrictedAttention, SelfAttention, make_layer
from ablations.table1.measure import (
    count_flops,
    memory,
    path_length,
    sequential_operations,
)


@pytest.mark.parametrize("name", paper.NAMES)
def test_a_layer_keeps_the_shape_and_every_position_gets_a_gradient(name: str) -> None:
    x = torch.randn(2, 37, 64, requires_grad=True)
    y = make_layer(name, 64)(x)
    assert y.shape == x.shape
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.isfinite().all()
    assert gradient.abs().sum(dim=-1).min() > 0


@pytest.mark.parametrize("n", [5, 8, 29])
def test_restricted_attention_is_attention_under_a_band(n: int) -> None:
    r, x = 8, torch.randn(3, n, 128, dtype=torch.float64)
    heads = x.unflatten(-1, (2, 64)).transpose(1, 2)
    distance = torch.arange(n) - torch.arange(n)[:, None]
    scores = (heads @ heads.mT / 8).masked_fill((distance < -r // 2) | (distance >= r // 2), -1e30)
    expected = (scores.softmax(-1) @ heads).transpose(1, 2).flatten(2)
    torch.testing.assert_close(RestrictedAttention(r)(x), expected)
    torch.testing.assert_close(RestrictedAttention(2 * n)(x), SelfAttention()(x))


def test_flops_are_those_of_the_formulas() -> None:
    n, d, k, r = 256, 128, 3, 64
    expected = {
        paper.ATTENTION: 12 * n**2 * d,
        paper.RECURRENT: 48 * n * d**2,
        paper.CONVOLUTION: 6 * k * n * d**2,
        paper.SEPARABLE: 6 * (k * n * d + n * d**2),
        paper.RESTRICTED: 2 * 12 * r * n * d,
        paper.PROJECTED: 12 * n**2 * d + 24 * n * d**2,
    }
    assert {name: count_flops(name, n, d) for name in paper.NAMES} == expected


@pytest.mark.parametrize("name", [paper.ATTENTION, paper.CONVOLUTION, paper.PROJECTED])
def test_backward_takes_twice_the_products_of_forward(name: str) -> None:
    x = torch.empty(1, 29, 64, device="meta", requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        y = make_layer(name, 64, x.device)(x)
        y.backward(torch.empty_like(y))
    assert counter.get_total_flops() == count_flops(name, 29, 64)


def test_memory_is_what_backward_needs_without_weights() -> None:
    x = torch.randn(1, 32, 64, requires_grad=True)
    values = 32 * 64 * 4
    assert memory(make_layer(paper.CONVOLUTION, 64), x) == values  # its input alone
    assert memory(make_layer(paper.SEPARABLE, 64), x) == 2 * values


@pytest.mark.parametrize("n", [16, 81, 130])
def test_path_lengths(n: int) -> None:
    assert path_length(paper.ATTENTION, n) == 1
    assert path_length(paper.RECURRENT, n) == n
    assert path_length(paper.DILATED, n) == next(steps for steps in range(n) if 3**steps >= n)
    assert path_length(paper.RESTRICTED, n) == math.ceil((n - 1) / 32)


@pytest.mark.parametrize("name", paper.NAMES)
def test_only_the_recurrent_layer_has_a_chain_as_long_as_its_input(name: str) -> None:
    short, long = (sequential_operations(name, n) for n in (3, 29))
    assert (short, long) == ((3, 29) if name == paper.RECURRENT else (short, short))
