"""Sequential operations and maximum path length, both counted rather than quoted."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ablations.complexity.layers import Convolution, make_layer
from ablations.complexity.paper import (
    CONTIGUOUS,
    DILATED,
    KERNEL,
    RECURRENT,
)

_WIDTH = 64
# The operations of autograd's graph that multiply matrices.
_PRODUCTS = ("AddmmBackward", "MmBackward", "BmmBackward", "ConvolutionBackward")


def sequential_operations(name: str, n: int) -> int:
    """The longest chain of matrix products in a layer, each of which needs the one before.

    It is read from the graph that autograd records of the layer on a CPU in double precision, for
    which torch has no fused LSTM: it is carried out position by position.
    """
    x = torch.randn(1, n, _WIDTH, dtype=torch.float64, requires_grad=True)
    with sdpa_kernel(SDPBackend.MATH):
        end = make_layer(name, _WIDTH).double()(x).grad_fn
    longest: dict[torch.autograd.graph.Node, int] = {}
    waiting = [end] if end is not None else []
    while waiting:  # depth first without recursion, as an LSTM's graph is n deep
        node = waiting[-1]
        inputs = [each for each, _ in node.next_functions if each is not None]
        missing = [each for each in inputs if each not in longest]
        if missing:
            waiting += missing
        else:
            before = max((longest[each] for each in inputs), default=0)
            longest[node] = before + node.name().startswith(_PRODUCTS)
            waiting.pop()
    return max(longest.values())


def path_length(name: str, n: int) -> int:
    """Steps until the last of ``n`` positions depends on the first, by the support of gradients.

    A step is one layer; of the recurrent layer it is one application of the cell, at all positions
    at once. The gradient of the last output is taken back step by step, keeping only where it is
    not zero, until it reaches the first input.
    """
    torch.manual_seed(0)
    step_at = _steps(name)
    width = _WIDTH * 3 if name == RECURRENT else _WIDTH
    state = torch.randn(1, n, width, requires_grad=True)
    support = torch.zeros_like(state)
    support[:, -1] = 1
    steps = 0
    while not support[:, 0, :_WIDTH].any():
        (gradient,) = torch.autograd.grad(step_at(steps)(state), state, support)
        # Only where it is not zero counts: its size would underflow after some hundred steps.
        support = (gradient != 0).to(state.dtype)
        steps += 1
        if steps > 2 * n:
            raise AssertionError(f"{name}: no gradient reaches the first of {n} positions")
    return steps


def _steps(name: str) -> Callable[[int], nn.Module]:
    """The step of a number, from 0 on; only those of dilated convolutions differ."""
    if name == DILATED:
        return lambda number: _backward_looking(KERNEL**number)
    if name == CONTIGUOUS:
        return lambda _: _backward_looking(1)
    layer = _CellEverywhere(_WIDTH) if name == RECURRENT else make_layer(name, _WIDTH)
    return lambda _: layer


@cache
def _backward_looking(gap: int) -> nn.Module:
    """A convolution of each position with earlier ones, as in the decoders of section 4.

    With a kernel around the position, wide gaps would leave the sequence at both ends.
    """
    before = nn.ConstantPad1d((gap * (KERNEL - 1), 0), 0.0)
    return Convolution(before, nn.Conv1d(_WIDTH, _WIDTH, KERNEL, dilation=gap))


class _CellEverywhere(nn.Module):
    """An LSTM's cell applied to each position and the state of the position before it.

    The state is (1, n, 3d): input, hidden state and memory. After n such steps from zero the
    hidden states are those of the LSTM.
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(d, d)

    def forward(self, state: Tensor) -> Tensor:
        x, hidden, memory = state[0].chunk(3, dim=-1)
        earlier = (F.pad(each, (0, 0, 1, 0))[:-1] for each in (hidden, memory))
        return torch.cat([x, *self.cell(x, tuple(earlier))], dim=-1)[None]
