"""Table 1 as the paper prints it."""

from __future__ import annotations

from dataclasses import dataclass

TITLE = "Table 1: complexity, sequential operations and path length of layers"
KERNEL = 3  # the paper's k
NEIGHBOURHOOD = 64  # the paper's r
HEAD_WIDTH = 64  # d_k of the paper's base model
LENGTHS = tuple(2**power for power in range(4, 13))  # n, 16 to 4,096
WIDTHS = (64, 128, 256, 512, 1024)  # d
STEP_LENGTHS = (16, 32, 64, 128, 256, 512, 1024)  # n at which operations and paths are counted
# Exponents are fitted from these sizes on: below, calls and small matmuls take most of the time.
LEAST_N, LEAST_D = 256, 128
# On a CPU a layer is not timed if a pass has more FLOPs; an LSTM's FLOPs take four times as long.
MOST_FLOPS, MOST_FLOPS_RECURRENT = 2e11, 5e10

ATTENTION = "self-attention"
RECURRENT = "recurrent"
CONVOLUTION = "convolutional"
RESTRICTED = "self-attention (restricted)"
SEPARABLE = "separable convolution"
PROJECTED = "self-attention, projected"
DILATED = "convolutional, dilated"  # a stack, only for the path length


@dataclass(frozen=True, slots=True)
class LayerType:
    """A row of Table 1; ``powers`` are the exponents of n and d, if one term dominates."""

    name: str
    complexity: str
    powers: tuple[int | None, int | None]
    sequential: str
    path: str


# The separable convolution is from section 4's text. We added the projections of queries, keys,
# values and output: the table leaves them out, but no Transformer runs without them.
LAYER_TYPES = (
    LayerType(ATTENTION, "n²·d", (2, 1), "1", "1"),
    LayerType(RECURRENT, "n·d²", (1, 2), "n", "n"),
    LayerType(CONVOLUTION, "k·n·d²", (1, 2), "1", "log_k n"),
    LayerType(RESTRICTED, "r·n·d", (1, 1), "1", "n/r"),
    LayerType(SEPARABLE, "k·n·d + n·d²", (1, 2), "1", "log_k n"),
    LayerType(PROJECTED, "n²·d + n·d²", (None, None), "1", "1"),
)
NAMES = tuple(each.name for each in LAYER_TYPES)
NOT_IN_TABLE = (SEPARABLE, PROJECTED)
PATHS = (ATTENTION, RECURRENT, DILATED, RESTRICTED)  # the layers with a measured path length


def most_flops(name: str) -> float:
    """The FLOPs of a pass above which a layer is not timed on a CPU."""
    return MOST_FLOPS_RECURRENT if name == RECURRENT else MOST_FLOPS
