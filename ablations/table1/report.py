"""The report of Table 1: HTML, Markdown, CSV and plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np

from ablations.files import CSV_FILE
from ablations.folder import LayersFolder
from ablations.report.grid import Column, Grid
from ablations.report.layout import Figure, to_csv, write_files
from ablations.report.statistics import CONFIDENCE, t_quantile
from ablations.tables import table1 as paper
from ablations.tables.measurements import Measurements
from ablations.tables.table1 import ATTENTION, LAYER_TYPES, NAMES, PROJECTED, RECURRENT
from experiments.figures import style
from experiments.figures.style import Record, Spec
from transformer import formats

_TEMPLATE = Path(__file__).parent / "templates" / "table1.j2"
_TIME = (
    "Time of a forward and backward pass against the length n: a panel for each width d, a line "
    "for each layer, on logarithmic axes. Points are medians, bars quartiles."
)
_MEMORY = "Memory against the length n: a panel for each width d, a line for each layer."
_COSTS = {
    "FLOPs": "flops",
    "time": "seconds",
    "forward": "forward_seconds",
    "backward": "backward_seconds",
    "memory": "memory_bytes",
}
_EXACT = 0.005  # below it a slope is shown without its confidence interval


def write_layers_report(folder: LayersFolder) -> str:
    """Write the report into the folder, finished or not; return the report for the terminal."""
    found = folder.plan
    figures: list[Figure] = []
    exports: dict[str, str] = {}
    if rows := found.records():
        time = _draw_costs(rows, "seconds", "seconds forward and backward", "~g")
        where = "saved for backward" if found.kind == "cpu" else "at the peak of a pass"
        memory = _draw_costs(rows, "memory_bytes", f"bytes {where}", "~s")
        figures.append(Figure(name="time", spec=time, caption=_TIME))
        figures.append(Figure(name="memory", spec=memory, caption=_MEMORY))
        lines: list[list[object]] = [[*rows[0]]]
        for row in rows:
            lines.append([f"{x:.6g}" if isinstance(x, float) else x for x in row.values()])
        exports[CSV_FILE] = to_csv(lines)
    sizes = len(paper.WIDTHS) * len(paper.LENGTHS)
    values = {
        "title": paper.TITLE,
        "headline": f"{len(found.points)} of {sizes} pairs of length n and width d "
        f"measured on {found.device}, torch {found.torch}, fp32, one sequence at a time.",
        "results": _results(found),
        "crossings": _crossings(found),
        "exponents": _exponents(found),
        "facts": (
            ("device", found.device),
            ("torch", found.torch),
            ("precision", "fp32, without TF32"),
            ("batch", "1 sequence"),
            ("commit", ", ".join(dict.fromkeys(point.commit for point in found.points))),
        ),
        "on_cpu": found.kind == "cpu",
        "paper": paper,
    }
    return write_files(folder.path, _TEMPLATE, values, figures, exports)


def _results(found: Measurements) -> Grid:
    """The paper's table, with our measurements next to each of its columns."""
    paths = [paper.DILATED if name == paper.CONVOLUTION else name for name in NAMES]
    complexity, operations, path = "complexity", "sequential operations", "maximum path length"
    names = [f"{name} *" if name in paper.NOT_IN_TABLE else name for name in NAMES]
    flops = [_powers(found, name, "flops") for name in NAMES]
    return Grid(
        [
            Column("layer", names),
            Column("paper", [f"O({x.complexity})" for x in LAYER_TYPES], complexity, "theirs"),
            Column("FLOPs", flops, complexity, "ours", optional=1),
            Column("time", [_powers(found, x, "seconds") for x in NAMES], complexity, "ours"),
            Column("", [_ends(found.sequential.get(x, ())) for x in NAMES], operations, "ours"),
            Column("paper", [f"O({x.sequential})" for x in LAYER_TYPES], operations, "theirs"),
            Column("", [_ends(found.paths.get(x, ())) for x in paths], path, "ours"),
            Column("paper", [f"O({x.path})" for x in LAYER_TYPES], path, "theirs"),
        ]
    )


def _ends(counts: Sequence[int]) -> str:
    """The counts at the smallest and at the largest length."""
    return " to ".join(dict.fromkeys(map(formats.count, (*counts[:1], *counts[-1:]))))


def _powers(found: Measurements, name: str, cost: str) -> str:
    """A layer's cost as powers of n and d: ``n^1.98·d^1.02``."""
    fits = {"n": _fit(found, name, cost, 0), "d": _fit(found, name, cost, 1)}
    return "·".join(f"{letter}^{fit[0]:.2f}" for letter, fit in fits.items() if fit)


def _exponents(found: Measurements) -> Grid:
    """The exponents of n and d in each cost with confidence intervals, next to the paper's."""
    if not found.points:
        return Grid([])
    columns = [Column("layer", NAMES)]
    for of, letter in enumerate("nd"):
        group = f"exponent of {letter}"
        powers = [str(each.powers[of] or "") for each in LAYER_TYPES]
        columns.append(Column("paper", powers, group, "theirs"))
        for title, cost in _COSTS.items():
            cells: list[str] = []
            for name in NAMES:
                slope, half = _fit(found, name, cost, of) or (None, 0)
                interval = f" ± {half:.2f}" if half >= _EXACT else ""
                cells.append(formats.number(slope, 2) + interval)
            rank = int(title in ("forward", "backward"))
            columns.append(Column(title, cells, group, "ours", optional=rank))
    return Grid(columns)


def _fit(found: Measurements, name: str, cost: str, of: int) -> tuple[float, float] | None:
    """The exponent in a layer's cost at the large sizes, by :func:`fit_exponent`."""
    costs: dict[tuple[int, int], float] = {}
    for point in found.points:
        known = point.costs(name)
        if point.n >= paper.LEAST_N and point.d >= paper.LEAST_D and cost in known:
            costs[point.n, point.d] = known[cost]
    return fit_exponent(costs, of)


def fit_exponent(costs: Mapping[tuple[int, int], float], of: int = 0) -> tuple[float, float] | None:
    """The exponent of n (``of`` is 0) or of d (1) in costs by n and d, and half the width of its
    95 % confidence interval.

    It is the common slope of lines on logarithmic axes, one for each value of the other size. The
    interval is by Student's t of the residuals, which counts any curvature as noise. None if no
    degree of freedom is left.
    """
    others = sorted({sizes[1 - of] for sizes in costs})
    freedom = len(costs) - len(others) - 1
    if freedom < 1:
        return None
    # A column for the slope, and one for the intercept of each line.
    slope = np.log([sizes[of] for sizes in costs])
    intercepts = np.equal.outer([sizes[1 - of] for sizes in costs], others)
    design = np.column_stack([slope, intercepts])
    logarithms = np.log(list(costs.values()))
    fitted = np.linalg.lstsq(design, logarithms)[0]
    variance = ((logarithms - design @ fitted) ** 2).sum() / freedom
    error = math.sqrt(variance * np.linalg.inv(design.T @ design)[0, 0])
    return float(fitted[0]), t_quantile((1 + CONFIDENCE) / 2, freedom) * error


def _crossings(found: Measurements) -> Grid:
    """For each d, the length from which self-attention is slower than the LSTM."""
    heads = ("d", "by FLOPs", "by time", "with projections, by FLOPs", "with projections, by time")
    rows: list[list[str]] = []
    for d in paper.WIDTHS:
        rows.append([f"{d:,}"])
        for name in (ATTENTION, PROJECTED):
            flops: dict[int, float] = {}
            times: dict[int, float] = {}
            for point in found.points:
                if point.d == d:
                    flops[point.n] = point.flops[name] / point.flops[RECURRENT]
                    if name in point.memory and RECURRENT in point.memory:
                        # Samples were taken in turn, so each is divided by its neighbour in time.
                        pairs = zip(point.seconds(name), point.seconds(RECURRENT), strict=True)
                        times[point.n] = median(ours / theirs for ours, theirs in pairs)
            rows[-1] += [find_crossing(flops), find_crossing(times)]
    return Grid.of(heads, rows)


def find_crossing(ratios: Mapping[int, float]) -> str:
    """The length at which the ratio of two costs rises above 1 for the last time, interpolated on
    logarithmic axes, or the side of the measured lengths on which it lies.
    """
    if not ratios:
        return formats.MISSING
    rises = [
        n * (longer / n) ** (math.log(1 / before) / math.log(after / before))
        for (n, before), (longer, after) in pairwise(sorted(ratios.items()))
        if before < 1 <= after
    ]
    if rises:
        return f"{rises[-1]:,.0f}"
    return f"< {min(ratios):,}" if ratios[max(ratios)] > 1 else f"> {max(ratios):,}"


def _draw_costs(rows: Sequence[Record], field: str, title: str, form: str) -> Spec:
    """A cost against n on logarithmic axes: a panel for each d, a line for each layer."""
    legend = {"orient": "bottom", "columns": 3, "title": None, "symbolOpacity": 1}
    marks = dict(zip(NAMES, zip(style.COLOURS, style.SHAPES, strict=True), strict=True))
    colour, shape = style.looks("layer", rows, marks, legend=legend).values()
    x = style.axis("n", "length n", log=True, form=",d")
    x["axis"]["values"] = [4**power for power in range(2, 7)]
    y = style.axis(field, title, log=True, form=form)
    y["axis"]["values"] = [10**power for power in range(-5, 12)]
    shown = {"x": x, "y": y, "color": colour, "tooltip": style.tooltip("layer", "n", "d", field)}
    panel = [
        style.layer("line", shown, strokeWidth=1.5),
        style.layer("point", {**shown, "shape": shape}, filled=True, size=35, opacity=1),
    ]
    if field == "seconds":  # only this field has quartiles
        low, high = {**y, "field": "seconds_low"}, {"field": "seconds_high"}
        bars = {"x": x, "y": low, "y2": high, "color": colour}
        panel.insert(0, style.layer("rule", bars, strokeWidth=2, opacity=0.5))
    header = {"labelExpr": "'d = ' + format(datum.value, ',')"}
    return style.figure(
        f"{title.capitalize()}, by width d",
        data={"values": rows},
        columns=3,
        facet={"field": "d", "title": None, "header": header},
        resolve={"axis": {"x": "independent", "y": "independent"}},
        spec={"width": 230, "height": 210, "layer": panel},
    )
