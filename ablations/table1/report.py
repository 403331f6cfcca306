"""The report of Table 1: HTML, Markdown, CSV and figures."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, linear_regression, median

from ablations.files import CSV_FILE
from ablations.folder import LayersFolder
from ablations.report.layout import Column, Figure, Grid, write_files
from ablations.report.statistics import CONFIDENCE, t_quantile
from ablations.tables import table1 as paper
from ablations.tables.measurements import COLUMNS, Measurements, Point, wanted_points
from ablations.tables.table1 import ATTENTION, LAYER_TYPES, NAMES, PROJECTED, RECURRENT, WIDTHS
from experiments.figures import style
from experiments.figures.style import Record, Spec
from transformer import formats

Costs = Mapping[tuple[int, int], float]  # by n and d
_TEMPLATE = Path(__file__).parent / "templates" / "table1.j2"
_TIME = (
    "Time of a pass forward and backward against the length n: a panel for each width d, a line "
    "for each layer, on logarithmic axes. Points are medians, bars quartiles."
)
_MEMORY = "Memory against the length n: a panel for each width d, a line for each layer."
_EXACT = 0.005  # a slope whose interval rounds to nothing is shown without it


def write_layers_report(folder: LayersFolder) -> str:
    """Write the report into the folder, finished or not; the report for the terminal."""
    found = folder.plan
    rows = found.records()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(f"{x:.6g}" if isinstance(x, float) else x for x in row.values())
    figures: list[Figure] = []
    if rows:
        time = _draw_costs(rows, "seconds", "seconds forward and backward", "~g")
        where = "saved for backward" if found.kind == "cpu" else "at the peak of a pass"
        memory = _draw_costs(rows, "memory_bytes", f"bytes {where}", "~s")
        figures.append(Figure(name="time", spec=time, caption=_TIME))
        figures.append(Figure(name="memory", spec=memory, caption=_MEMORY))
    exports = {CSV_FILE: text.getvalue()}
    return write_files(folder.path, _TEMPLATE, compose(found), figures, exports)


def compose(found: Measurements) -> dict[str, object]:
    """The values of the report's templates."""
    commits = dict.fromkeys(point.commit for point in found.points)
    return {
        "title": paper.TITLE,
        "headline": f"{len(found.points)} of {len(wanted_points())} pairs of length n and width d "
        f"measured on {found.device}, torch {found.torch}, fp32, one sequence at a time.",
        "results": _results(found),
        "crossings": _crossings(found),
        "exponents": _exponents(found),
        "facts": (
            ("device", found.device),
            ("torch", found.torch),
            ("precision", "fp32, without TF32"),
            ("batch", "1 sequence"),
            ("commit", ", ".join(commits)),
        ),
        "on_cpu": found.kind == "cpu",
        "paper": paper,
    }


def _results(found: Measurements) -> Grid:
    """The paper's table with ours next to each of its columns."""
    costs = _costs(found)
    paths = [paper.DILATED if name == paper.CONVOLUTION else name for name in NAMES]
    complexity, operations, path = "complexity", "sequential operations", "maximum path length"
    names = [f"{x} *" if x in paper.NOT_IN_TABLE else x for x in NAMES]
    return Grid(
        [
            Column("layer", names),
            Column("paper", [f"O({x.complexity})" for x in LAYER_TYPES], complexity, "theirs"),
            Column("FLOPs", [_powers(x) for x in costs["FLOPs"]], complexity, "ours", optional=1),
            Column("time", [_powers(x) for x in costs["time"]], complexity, "ours"),
            Column("", [_ends(found.sequential.get(x, ())) for x in NAMES], operations, "ours"),
            Column("paper", [f"O({x.sequential})" for x in LAYER_TYPES], operations, "theirs"),
            Column("", [_ends(found.paths.get(x, ())) for x in paths], path, "ours"),
            Column("paper", [f"O({x.path})" for x in LAYER_TYPES], path, "theirs"),
        ]
    )


def _ends(counts: Sequence[int]) -> str:
    """The counts at the least and at the greatest length."""
    return " to ".join(dict.fromkeys(map(formats.count, (*counts[:1], *counts[-1:]))))


def _costs(found: Measurements) -> dict[str, list[Costs]]:
    """Each cost, for each layer: its values at the large sizes by n and d."""
    large = [x for x in found.points if x.n >= paper.LEAST_N and x.d >= paper.LEAST_D]
    timed = {name: [point for point in large if name in point.memory] for name in NAMES}
    return {
        "FLOPs": [{(p.n, p.d): p.flops[x] for p in large} for x in NAMES],
        "time": [{(p.n, p.d): median(p.seconds(x)) for p in timed[x]} for x in NAMES],
        "forward": [{(p.n, p.d): median(p.forward[x]) for p in timed[x]} for x in NAMES],
        "backward": [{(p.n, p.d): median(p.backward[x]) for p in timed[x]} for x in NAMES],
        "memory": [{(p.n, p.d): p.memory[x] for p in timed[x]} for x in NAMES],
    }


def _powers(costs: Costs) -> str:
    """The exponents of n and d in a cost by both: ``n^1.98·d^1.02``."""
    fitted = ((letter, fit_exponent(costs, of)) for of, letter in enumerate("nd"))
    return "·".join(f"{letter}^{found[0]:.2f}" for letter, found in fitted if found)


def _exponents(found: Measurements) -> Grid:
    """The exponents of n and of d in each cost with their intervals, next to the paper's."""
    columns = [Column("layer", [*NAMES])]
    for index, letter in enumerate("nd"):
        powers = [str(x.powers[index] or "") for x in LAYER_TYPES]
        columns.append(Column("paper", powers, f"exponent of {letter}", "theirs"))
        for name, costs in _costs(found).items():
            cells = [_with_interval(fit_exponent(x, index)) for x in costs]
            rank = int(name in ("forward", "backward"))
            columns.append(Column(name, cells, f"exponent of {letter}", "ours", optional=rank))
    return Grid(columns if found.points else [])


def _with_interval(fitted: tuple[float, float] | None) -> str:
    """A slope with its interval: ``1.98 ± 0.02``."""
    if fitted is None:
        return formats.MISSING
    slope, half = fitted
    return f"{slope:.2f}" + (f" ± {half:.2f}" if half >= _EXACT else "")


def fit_exponent(costs: Costs, of: int = 0) -> tuple[float, float] | None:
    """The exponent of n in a cost, or of d for 1, and half of its 95 % interval.

    The common slope of lines on logarithmic axes, one for each value of the other, and Student's t
    of the residuals, which takes any bend for noise; None if no residual is free.
    """
    lines: dict[int, list[tuple[float, float]]] = {}
    for sizes, cost in costs.items():
        lines.setdefault(sizes[1 - of], []).append((math.log(sizes[of]), math.log(cost)))
    freedom = len(costs) - len(lines) - 1
    if freedom < 1:
        return None
    x: list[float] = []
    y: list[float] = []
    for line in lines.values():
        middle_x, middle_y = (fmean(values) for values in zip(*line, strict=True))
        x += [each - middle_x for each, _ in line]
        y += [each - middle_y for _, each in line]
    slope = linear_regression(x, y, proportional=True).slope
    left = sum((b - slope * a) ** 2 for a, b in zip(x, y, strict=True))
    error = math.sqrt(left / freedom / sum(a * a for a in x))
    return slope, t_quantile((1 + CONFIDENCE) / 2, freedom) * error


def _crossings(found: Measurements) -> Grid:
    """For each d, the length from which attention is slower than the LSTM."""
    heads = ("d", "by FLOPs", "by time", "with projections, by FLOPs", "with projections, by time")
    rows: list[list[str]] = []
    for d in WIDTHS:
        points = [point for point in found.points if point.d == d]
        rows.append([f"{d:,}"])
        for name in (ATTENTION, PROJECTED):
            flops = {point.n: point.flops[name] / point.flops[RECURRENT] for point in points}
            rows[-1] += [find_crossing(flops), find_crossing(_times(points, name))]
    return Grid.of(heads, rows)


def _times(points: Sequence[Point], name: str) -> dict[int, float]:
    """The time of a layer over the LSTM's by length, of samples that were taken in turn."""
    ratios: dict[int, float] = {}
    for point in points:
        if name in point.memory and RECURRENT in point.memory:
            ours, theirs = point.seconds(name), point.seconds(RECURRENT)
            ratios[point.n] = median(x / y for x, y in zip(ours, theirs, strict=True))
    return ratios


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
    """A cost against n on logarithmic axes: a panel for each d, a line for each layer.

    Args:
        field: ``seconds``, with its range, or ``memory_bytes``
        title: of the axis, with its unit
        form: of its labels, in d3's notation
    """
    legend = {"orient": "bottom", "columns": 3, "title": None, "symbolOpacity": 1}
    marks = dict(zip(NAMES, zip(style.COLOURS, style.SHAPES, strict=True), strict=True))
    colour, shape = style.looks("layer", rows, marks, legend=legend).values()
    x = style.axis("n", "length n", log=True, form=",d")
    x["axis"]["values"] = [4**power for power in range(2, 7)]
    y = style.axis(field, title, log=True, form=form)
    y["axis"]["values"] = [10**power for power in range(-5, 12)]
    ends = [end for end in (f"{field}_low", f"{field}_high") if end in COLUMNS]
    tooltip = style.tooltip("layer", "n", "d", field, *ends)
    shown = {"x": x, "y": y, "color": colour, "tooltip": tooltip}
    panel = [
        style.layer("line", shown, strokeWidth=1.5),
        style.layer("point", {**shown, "shape": shape}, filled=True, size=35, opacity=1),
    ]
    if ends:
        bars = {"x": x, "y": {**y, "field": ends[0]}, "y2": {"field": ends[1]}, "color": colour}
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
