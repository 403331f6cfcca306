"""The layers compute what they say, and FLOPs and steps are counted as their formulas say."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ablations.complexity.layers import RestrictedAttention, SelfAttention, make_layer
from ablations.complexity.measure import count_flops, measure_layers
from ablations.complexity.paper import (
    ATTENTION,
    CONTIGUOUS,
    CONVOLUTION,
    DILATED,
    NAMES,
    PROJECTED,
    RECURRENT,
    RESTRICTED,
    SEPARABLE,
)
from ablations.complexity.paths import _CellEverywhere, path_length, sequential_operations


@pytest.mark.parametrize("name", NAMES)
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
        ATTENTION: 12 * n**2 * d,
        RECURRENT: 48 * n * d**2,
        CONVOLUTION: 6 * k * n * d**2,
        SEPARABLE: 6 * (k * n * d + n * d**2),
        RESTRICTED: 2 * 12 * r * n * d,
        PROJECTED: 12 * n**2 * d + 24 * n * d**2,
    }
    assert {name: count_flops(name, n, d) for name in NAMES} == expected


def test_flops_of_the_lstm_are_those_that_torch_counts_step_by_step() -> None:
    n, d = 5, 64
    x = torch.randn(1, n, d, dtype=torch.float64)
    with FlopCounterMode(display=False) as counter:
        make_layer(RECURRENT, d).double()(x)
    assert 3 * counter.get_total_flops() == count_flops(RECURRENT, n, d)


def test_memory_on_a_cpu_is_what_is_saved_for_backward_without_weights() -> None:
    device = torch.device("cpu")
    short, long = (measure_layers([CONVOLUTION], n, 64, device)[CONVOLUTION] for n in (16, 64))
    assert (short.memory, long.memory) == (16 * 64 * 4, 64 * 64 * 4)


@pytest.mark.parametrize("n", [16, 81, 130])
def test_path_lengths(n: int) -> None:
    assert path_length(ATTENTION, n) == 1
    assert path_length(RECURRENT, n) == n
    assert path_length(CONTIGUOUS, n) == math.ceil((n - 1) / 2)
    assert path_length(DILATED, n) == next(steps for steps in range(n) if 3**steps >= n)
    assert path_length(RESTRICTED, n) == math.ceil((n - 1) / 32)


def test_n_applications_of_the_cell_are_the_lstm() -> None:
    n, d = 7, 11
    lstm, everywhere = nn.LSTM(d, d, batch_first=True), _CellEverywhere(d)
    everywhere.cell.load_state_dict(
        {name.removesuffix("_l0"): weight for name, weight in lstm.state_dict().items()}
    )
    x = torch.randn(1, n, d)
    state = F.pad(x, (0, 2 * d))
    for _ in range(n):
        state = everywhere(state)
    torch.testing.assert_close(state[..., d : 2 * d], lstm(x)[0])


def test_only_the_recurrent_layer_has_a_chain_as_long_as_its_input() -> None:
    for name in NAMES:
        short, long = (sequential_operations(name, n) for n in (3, 29))
        assert (short, long) == ((3, 29) if name == RECURRENT else (short, short)), name
