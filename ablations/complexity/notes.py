"""The words of Table 1's report: what is missing, how the figures were obtained, on what."""

from __future__ import annotations

from collections.abc import Iterator

from ablations.complexity.exponents import LEAST_D, LEAST_N
from ablations.complexity.paper import (
    HEAD_WIDTH,
    KERNEL,
    KINDS,
    LENGTHS,
    NEIGHBOURHOOD,
    STEP_LENGTHS,
    WIDTHS,
)
from ablations.complexity.results import (
    LEAST_SAMPLES,
    LIMIT_SECONDS,
    MEASUREMENTS_FILE,
    MOST_SAMPLES,
    Measurements,
    wanted_points,
)
from transformer import formats


def missing(found: Measurements) -> Iterator[str]:
    """What is left out, a line for each layer and width, and what is damaged."""
    for kind in KINDS:
        for d in WIDTHS:
            points = [found.points[d, n] for n in LENGTHS if (d, n) in found.points]
            out = [point for point in points if kind.name in point.left_out]
            if out:
                lengths = ", ".join(f"{point.n:,}" for point in out)
                least = formats.duration(out[0].left_out[kind.name])
                yield f"{kind.name}, d = {d:,}: n = {lengths} (a pass would take {least} or more)"
    if lacking := len(wanted_points()) - len(found.points):
        yield f"{lacking} pairs of n and d are not measured yet: run table1 continues"
    if found.damaged:
        yield (
            f"{len(found.damaged)} damaged line(s) of {MEASUREMENTS_FILE} were skipped: run table1 "
            "measures them again"
        )


def notes(found: Measurements) -> Iterator[str]:
    """How the figures were obtained."""
    yield (
        "* is not a row of the paper's table: the separable convolution is in the text of section "
        "4, and the projections are what a Transformer's layer adds to self-attention."
    )
    yield (
        f"Exponents are least-squares slopes on logarithmic axes over n ≥ {LEAST_N} and d ≥ "
        f"{LEAST_D}: over n with an intercept for each d, over d with one for each n. ± is the "
        "95 % interval by Student's t from the residuals, which takes any bend for noise; without "
        "it, it is below 0.005."
    )
    yield (
        "Every layer maps n vectors of width d to as many. Self-attention has heads of width "
        f"{HEAD_WIDTH}, as in the paper's base model, and like the paper's n²·d no projections: "
        "nn.MultiheadAttention, which has them, is the last row. Recurrent is nn.LSTM, "
        f"convolutional nn.Conv1d with k = {KERNEL}, separable a depthwise and a pointwise one."
    )
    yield (
        f"Restricted attention reaches the r = {NEIGHBOURHOOD} positions around each. It is "
        "computed in blocks of r queries against 2r keys, half of them masked: twice the products "
        "of r·n·d, and memory in proportion to n."
    )
    yield (
        "FLOPs are those of products, counted by torch's FlopCounterMode forward and backward; "
        "for the LSTM 16·n·d² forward and twice that backward. Time is the median over "
        f"{LEAST_SAMPLES} to {MOST_SAMPLES} samples, taken from all layers in turn after a "
        "warm-up; a sample is the mean over at least 5 ms of passes."
    )
    yield (
        f"A layer is left out where a pass would take more than {LIMIT_SECONDS:g} s, judged by its "
        "time at the longest shorter n and its FLOPs."
    )
    yield (
        "Sequential operations are the longest chain of matrix products in the graph that autograd "
        "records, each of which needs the one before."
    )
    yield (
        "Path length is how many steps it takes until the last of n positions depends on the "
        f"first, by the support of gradients, for n up to {max(STEP_LENGTHS):,}; a step is a layer "
        "of a stack, or for the LSTM one application of its cell. Convolutions look back, as in a "
        "decoder; dilated ones skip kˡ positions in layer l = 0, 1, …, and only they need "
        "log_k n layers. A restricted layer reaches r/2 positions to each side."
    )
    if found.setting.kind == "cpu":
        yield (
            "Time is what the processor spent on the process, which other work on the machine "
            "changes less than it changes the time on a clock."
        )
        yield (
            "Memory is what a forward pass saves for the backward one, without weights: torch "
            "keeps no account of peaks on a CPU. Its fused attention saves none of the n² weights, "
            "so memory grows with n and not with n²."
        )
    else:
        yield "Memory is the peak allocated during a pass less what was allocated before it."


def facts(found: Measurements) -> Iterator[tuple[str, str]]:
    """The set-up, as names and values."""
    yield "device", found.setting.device
    yield "torch", found.setting.torch
    yield "precision", "fp32, without TF32"
    yield "batch", "1 sequence"
    yield "commit", ", ".join(dict.fromkeys(x.commit for x in found.points.values()))
