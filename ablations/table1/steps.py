"""Sequential operations and maximum path length, counted on the layers."""

from __future__ import annotations

from functools import cache

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ablations.table1 import paper
from ablations.table1.layers import Convolution, make_layer

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
    waiting = [end]
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
    """Layers until the last of ``n`` positions depends on the first, by the support of gradients.

    The gradient of the last output is taken back layer by layer, keeping only where it is not zero,
    until it reaches the first input. One recurrent layer is enough, but within it the signal passes
    through all of its sequential operations.
    """
    if name == paper.RECURRENT:
        return sequential_operations(name, n)
    torch.manual_seed(0)
    state = torch.randn(1, n, _WIDTH, requires_grad=True)
    support = torch.zeros_like(state)
    support[:, -1] = 1
    layers = 0
    while not support[:, 0].any():
        (gradient,) = torch.autograd.grad(_layer_of_stack(name, layers)(state), state, support)
        # Only where it is not zero counts: its size would underflow after some hundred layers.
        support = (gradient != 0).to(state.dtype)
        layers += 1
    return layers


@cache
def _layer_of_stack(name: str, number: int) -> nn.Module:
    """A layer by its number from 0 on, on which only the gaps of dilated convolutions depend.

    Convolutions look back, as in the decoders of section 4: with a kernel around the position, wide
    gaps would leave the sequence at both ends.
    """
    if name not in (paper.DILATED, paper.CONTIGUOUS):
        return make_layer(name, _WIDTH)
    gap = paper.KERNEL**number if name == paper.DILATED else 1
    before = nn.ConstantPad1d((gap * (paper.KERNEL - 1), 0), 0.0)
    return Convolution(before, nn.Conv1d(_WIDTH, _WIDTH, paper.KERNEL, dilation=gap))
