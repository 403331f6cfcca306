"""The report of Table 1: the paper's table with our measurements beside its figures."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

from ablations.complexity.exponents import (
    LEAST_D,
    LEAST_N,
    crossings,
    exponents_table,
    growth,
    power,
    steps_table,
)
from ablations.complexity.paper import (
    HEAD_WIDTH,
    KERNEL,
    KINDS,
    LENGTHS,
    NEIGHBOURHOOD,
    STEP_LENGTHS,
    TITLE,
    WIDTHS,
    Kind,
)
from ablations.complexity.results import (
    LEAST_SAMPLES,
    LIMIT_SECONDS,
    MEASUREMENTS_FILE,
    MOST_SAMPLES,
    Measurements,
    load,
    wanted_points,
)
from ablations.figures.complexity import draw_costs
from ablations.files import CSV_FILE
from ablations.report.page import Column, Facts, Figure, Figures, Page, Table, Text, make_page
from ablations.report.write import write_page
from experiments.figures.style import Record
from transformer import formats


def write_layers_report(directory: Path) -> Page:
    """Write the report into a directory: HTML, Markdown, CSV and figures.

    Raises:
        InputError: if the directory has no measurements of Table 1.
    """
    found = load(directory)
    page = compose_layers(found)
    write_page(page, directory, {CSV_FILE: _to_csv(found)})
    return page


def compose_layers(found: Measurements) -> Page:
    """The report of the measurements, finished or not."""
    headline = (
        f"{len(found.points)} of {len(wanted_points())} pairs of length n and width d measured on "
        f"{found.setting.device}, torch {found.setting.torch}, fp32, one sequence at a time."
    )
    figures = tuple(_figures(found))
    return make_page(
        TITLE,
        (
            "",
            [Text((headline,), style="headline", terminal=True), _table(found)],
        ),
        ("Time against length", [Figures(figures[:1])]),
        (
            "Where self-attention becomes slower than recurrence",
            [
                crossings(found),
                Text(
                    (
                        "The length n from which a pass of self-attention takes longer than one "
                        "of the LSTM; in brackets by the quartiles of the samples. The paper's "
                        "n²·d and n·d² cross at n = d; with their factors, 12·n²·d and 48·n·d² "
                        "FLOPs forward and backward, they cross at n = 4d.",
                    )
                ),
            ],
        ),
        ("Exponents", [exponents_table(found)]),
        ("Dependent steps", [steps_table(found)]),
        ("Memory against length", [Figures(figures[1:])]),
        ("Not measured", [Text(tuple(_missing(found)), style="problems", is_list=True)]),
        ("How to read it", [Text(tuple(_notes(found)), is_list=True)]),
        ("Set-up", [Facts(tuple(_facts(found)))]),
    )


def _table(found: Measurements) -> Table:
    """The paper's table with ours beside each of its columns."""
    columns = (
        Column("layer"),
        Column("paper", "complexity", style="theirs"),
        Column("FLOPs", "complexity", style="ours", optional=1),
        Column("time", "complexity", style="ours"),
        Column("", "sequential operations", style="ours"),
        Column("paper", "sequential operations", style="theirs"),
        Column("", "maximum path length", style="ours"),
        Column("paper", "maximum path length", style="theirs"),
    )
    return Table(columns=columns, rows=tuple(_row(found, kind) for kind in KINDS), terminal=True)


def _row(found: Measurements, kind: Kind) -> tuple[str, ...]:
    paths = [growth(found, "path", name, form) for name, form in kind.paths[:1]]
    return (
        kind.name if kind.in_table else f"{kind.name} *",
        f"O({kind.complexity})",
        power(found, kind.name, "FLOPs"),
        power(found, kind.name, "time"),
        growth(found, "sequential", kind.name, kind.sequential),
        f"O({kind.sequential})",
        "".join(paths),
        f"O({kind.path})",
    )


def _figures(found: Measurements) -> Iterator[Figure]:
    timings = [
        (point, name, point.layers[name])
        for kind in KINDS
        for _, point in sorted(found.points.items())
        for name in [kind.name]
        if name in point.layers
    ]
    if not timings:
        return
    seconds: list[Record] = []
    memory: list[Record] = []
    for point, name, timing in timings:
        low, _, high = quantiles(timing.samples, n=4)
        where = {"layer": name, "n": point.n, "d": point.d}
        seconds.append({**where, "seconds": timing.seconds, "low": low, "high": high})
        memory.append({**where, "bytes": timing.memory, "low": None, "high": None})
    yield Figure(
        name="time",
        spec=draw_costs(seconds, "seconds", "seconds forward and backward", "~g"),
        caption="Time of a pass forward and backward against the length n: a panel for each width "
        "d, a line for each layer, on logarithmic axes. Points are medians, bars quartiles.",
    )
    yield Figure(
        name="memory",
        spec=draw_costs(memory, "bytes", _memory(found), "~s"),
        caption="Memory against the length n: a panel for each width d, a line for each layer.",
    )


def _memory(found: Measurements) -> str:
    return (
        "bytes saved for backward" if found.setting.kind == "cpu" else "bytes at the peak of a pass"
    )


def _missing(found: Measurements) -> Iterator[str]:
    """What is left out, a line for each layer and width, and what is damaged."""
    for kind in KINDS:
        for d in WIDTHS:
            points = [found.points[d, n] for n in LENGTHS if (d, n) in found.points]
            out = [point for point in points if kind.name in point.left_out]
            if out:
                yield (
                    f"{kind.name}, d = {d}: n = {', '.join(f'{x.n:,}' for x in out)} (a pass would "
                    f"take {formats.duration(out[0].left_out[kind.name])} or more)"
                )
    if lacking := len(wanted_points()) - len(found.points):
        yield f"{lacking} pairs of n and d are not measured yet: run table1 continues"
    if found.damaged:
        yield (
            f"{len(found.damaged)} damaged line(s) of {MEASUREMENTS_FILE} were skipped: run table1 "
            "measures them again"
        )


def _notes(found: Measurements) -> Iterator[str]:
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
            "Memory is what a forward pass saves for the backward one besides weights: torch keeps "
            "no account of peaks on a CPU. Its fused attention saves none of the n² weights, so "
            "memory grows with n and not with n²."
        )
    else:
        yield "Memory is the peak allocated during a pass less what was allocated before it."


def _facts(found: Measurements) -> Iterator[tuple[str, str]]:
    yield "device", found.setting.device
    yield "torch", found.setting.torch
    yield "precision", "fp32, without TF32"
    yield "batch", "1 sequence"
    yield "commit", ", ".join(dict.fromkeys(x.commit for x in found.points.values()))


def _to_csv(found: Measurements) -> str:
    """All points: sizes, FLOPs, medians and quartiles in seconds, bytes."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    heads = "layer,n,d,flops,forward_seconds,backward_seconds,seconds,seconds_low,seconds_high"
    writer.writerow([*heads.split(","), "memory_bytes", "samples"])
    for _, point in sorted(found.points.items()):
        for name, timing in point.layers.items():
            low, middle, high = quantiles(timing.samples, n=4)
            times = (median(timing.forward), median(timing.backward), middle, low, high)
            sizes = (name, point.n, point.d, point.flops[name])
            shown = (f"{seconds:.6g}" for seconds in times)
            writer.writerow([*sizes, *shown, timing.memory, len(timing.samples)])
    return file.getvalue()
