"""Table 1 as the paper prints it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

TITLE = "Table 1: complexity, sequential operations and path length of layers"
KERNEL = 3  # the paper's k
NEIGHBOURHOOD = 64  # the paper's r
HEAD_WIDTH = 64  # d_k of the paper's base model
LENGTHS = tuple(2**power for power in range(4, 13))  # n, 16 to 4,096
WIDTHS = (64, 128, 256, 512, 1024)  # d
STEP_LENGTHS = (16, 32, 64, 128, 256, 512, 1024)  # n, where steps are counted instead of timed
# Exponents are of the asymptotic range: below it calls and small products take most of the time.
LEAST_N, LEAST_D = 256, 128
# A layer whose pass would take longer is left out.
LIMIT_SECONDS = 3.0

ATTENTION = "self-attention"
RECURRENT = "recurrent"
CONVOLUTION = "convolutional"
RESTRICTED = "self-attention (restricted)"
SEPARABLE = "separable convolution"
PROJECTED = "self-attention, projected"
# Two stacks of convolutions, whose path lengths differ.
CONTIGUOUS, DILATED = "convolutional, contiguous", "convolutional, dilated"


@dataclass(frozen=True, slots=True)
class LayerType:
    """A layer type with the paper's figures for it.

    ``powers`` are the exponents of n and d in the complexity; None where it is a sum of which no
    term dominates.
    """

    name: str
    complexity: str
    powers: tuple[int | None, int | None]
    sequential: str
    path: str


# The separable convolution is from section 4's text. The projections of queries, keys, values and
# output are ours to add: the table leaves them out, but no Transformer runs without.
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

# The paths that are measured, each with its growth; n/k is section 4's for contiguous kernels.
PATHS = {ATTENTION: "1", RECURRENT: "n", DILATED: "log_k n", CONTIGUOUS: "n/k", RESTRICTED: "n/r"}
GROWTH: Mapping[str, Callable[[int], float]] = {
    "1": lambda n: 1.0,
    "n": float,
    "n/k": lambda n: n / KERNEL,
    "log_k n": lambda n: math.log(n, KERNEL),
    "n/r": lambda n: n / NEIGHBOURHOOD,
}
