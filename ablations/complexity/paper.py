"""Table 1 as the paper prints it, and the sizes at which it is measured here."""

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

ATTENTION = "self-attention"
RECURRENT = "recurrent"
CONVOLUTION = "convolutional"
SEPARABLE = "separable convolution"
RESTRICTED = "self-attention (restricted)"
PROJECTED = "self-attention, projected"
CONTIGUOUS, DILATED = "convolutional, contiguous", "convolutional, dilated"


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A type of layer with the paper's figures for it.

    ``powers`` are the exponents of n and d in the complexity; None where it is a sum of which no
    term dominates. ``paths`` has the name and the form of growth of each path that is measured.
    """

    name: str
    complexity: str
    powers: tuple[int | None, int | None]
    sequential: str
    path: str
    paths: tuple[tuple[str, str], ...] = ()
    in_table: bool = True


# Table 1; the separable convolution is from section 4's text. The projections of queries, keys,
# values and output are ours to add: the table leaves them out, but no Transformer runs without.
KINDS = (
    Kind(
        name=ATTENTION,
        complexity="n²·d",
        powers=(2, 1),
        sequential="1",
        path="1",
        paths=((ATTENTION, "1"),),
    ),
    Kind(
        name=RECURRENT,
        complexity="n·d²",
        powers=(1, 2),
        sequential="n",
        path="n",
        paths=((RECURRENT, "n"),),
    ),
    Kind(
        name=CONVOLUTION,
        complexity="k·n·d²",
        powers=(1, 2),
        sequential="1",
        path="log_k n",
        paths=((DILATED, "log_k n"), (CONTIGUOUS, "n/k")),
    ),
    Kind(
        name=RESTRICTED,
        complexity="r·n·d",
        powers=(1, 1),
        sequential="1",
        path="n/r",
        paths=((RESTRICTED, "n/r"),),
    ),
    Kind(
        name=SEPARABLE,
        complexity="k·n·d + n·d²",
        powers=(1, 2),
        sequential="1",
        path="log_k n",
        in_table=False,
    ),
    Kind(
        name=PROJECTED,
        complexity="n²·d + n·d²",
        powers=(None, None),
        sequential="1",
        path="1",
        in_table=False,
    ),
)
NAMES = tuple(kind.name for kind in KINDS)

# The forms in which counts of steps grow with n; n/k is section 4's for contiguous kernels.
GROWTH: Mapping[str, Callable[[int], float]] = {
    "1": lambda n: 1.0,
    "n": float,
    "n/k": lambda n: n / KERNEL,
    "log_k n": lambda n: math.log(n, KERNEL),
    "n/r": lambda n: n / NEIGHBOURHOOD,
}
