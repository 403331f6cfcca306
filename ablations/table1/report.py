"""The report of Table 1: HTML, Markdown, CSV and figures."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles

from ablations.files import CSV_FILE
from ablations.report.layout import Column, Figure, Grid
from ablations.report.write import write_files
from ablations.table1 import paper
from ablations.table1.fit import COSTS, crossing, exponents, growth, power, with_interval
from ablations.table1.measurements import Measurements, load, wanted_points
from ablations.table1.paper import LAYER_TYPES, NAMES, PATHS, WIDTHS
from experiments.figures import style
from experiments.figures.style import Record, Spec
from transformer import formats

_TEMPLATE = Path(__file__).parent / "templates" / "table1.j2"
_COLUMNS = (
    *("layer", "n", "d", "flops", "forward_seconds", "backward_seconds"),
    *("seconds", "seconds_low", "seconds_high", "memory_bytes", "samples"),
)


def write_layers_report(directory: Path) -> str:
    """Write the report into a directory: HTML, Markdown, CSV and figures.

    Returns:
        The report for the terminal.

    Raises:
        InputError: if the directory has no measurements of Table 1, or damaged ones.
    """
    found = load(directory)
    tables = {CSV_FILE: _to_csv(_points(found))}
    return write_files(directory, _TEMPLATE, compose(found), _figures(found), tables)


def compose(found: Measurements) -> dict[str, object]:
    """The values of the report's templates, finished or not."""
    commits = dict.fromkeys(point.commit for point in found.points)
    return {
        "title": paper.TITLE,
        "headline": f"{found.summary}, torch {found.torch}, fp32, one sequence at a time.",
        "results": _results(found),
        "crossings": _crossings(found),
        "exponents": [_exponents(found, index) for index in range(2)] if found.points else [],
        "steps": _steps(found),
        "left_out": list(_left_out(found)),
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
    names = [f"{x.name} *" if x.name in paper.NOT_IN_TABLE else x.name for x in LAYER_TYPES]
    sequential = [growth(found, "sequential", x.name, x.sequential) for x in LAYER_TYPES]
    measured = [paper.DILATED if x.name == paper.CONVOLUTION else x.name for x in LAYER_TYPES]
    paths = [growth(found, "path", x, PATHS[x]) if x in PATHS else "" for x in measured]
    complexity, operations, path = "complexity", "sequential operations", "maximum path length"
    return Grid(
        [
            Column("layer", names),
            Column("paper", [f"O({x.complexity})" for x in LAYER_TYPES], complexity, "theirs"),
            Column(
                "FLOPs", [power(found, x, "FLOPs") for x in NAMES], complexity, "ours", optional=1
            ),
            Column("time", [power(found, x, "time") for x in NAMES], complexity, "ours"),
            Column("", sequential, operations, "ours"),
            Column("paper", [f"O({x.sequential})" for x in LAYER_TYPES], operations, "theirs"),
            Column("", paths, path, "ours"),
            Column("paper", [f"O({x.path})" for x in LAYER_TYPES], path, "theirs"),
        ]
    )


def _crossings(found: Measurements) -> Grid:
    """For each d, the length from which attention is slower than the LSTM."""
    heads = ("d", "by FLOPs", "by time", "with projections, by FLOPs", "with projections, by time")
    layers = [
        (name, cost) for name in (paper.ATTENTION, paper.PROJECTED) for cost in ("FLOPs", "time")
    ]
    return Grid.of(
        heads,
        [(f"{d:,}", *(crossing(found, name, d, cost) for name, cost in layers)) for d in WIDTHS],
    )


def _exponents(found: Measurements, index: int) -> Grid:
    """The exponents of n or of d in every cost, next to the paper's."""
    rows = [
        (
            each.name,
            str(each.powers[index] or ""),
            *(with_interval(exponents(found, each.name, cost)[index]) for cost in COSTS),
        )
        for each in LAYER_TYPES
    ]
    return Grid.of((f"exponent of {'nd'[index]}", "paper", *COSTS), rows)


def _steps(found: Measurements) -> Grid:
    """Every count of dependent steps by length, and its growth."""
    kinds = [("sequential", x.name, x.sequential) for x in LAYER_TYPES]
    kinds += [("path", *path) for path in PATHS.items()]
    words = {"sequential": "operations", "path": "path"}
    rows = [
        (
            f"{words[what]}, {name}",
            *(
                formats.count(counts[n]) if n in counts else formats.MISSING
                for n in paper.STEP_LENGTHS
            ),
            growth(found, what, name, form),
        )
        for what, name, form in kinds
        if (counts := found.counts(what, name))
    ]
    return Grid.of(("count", *(f"n = {n:,}" for n in paper.STEP_LENGTHS), "growth"), rows)


def _left_out(found: Measurements) -> Iterator[str]:
    """A line for each layer and width that lack lengths, with the reason."""
    for name in NAMES:
        for d in WIDTHS:
            slow = [point for point in found.points if point.d == d and name in point.left_out]
            if slow:
                lengths = ", ".join(f"{point.n:,}" for point in slow)
                least = formats.duration(slow[0].left_out[name])
                yield f"{name}, d = {d:,}: n = {lengths} (a pass would take {least} or more)"
    if lacking := len(wanted_points()) - len(found.points):
        yield f"{lacking} pairs of n and d are not measured yet: run table1 continues"


def _points(found: Measurements) -> list[Record]:
    """All points: sizes, FLOPs, medians and quartiles in seconds, bytes."""
    rows: list[Record] = []
    for point in found.points:
        for name, timing in point.layers.items():
            low, middle, high = quantiles(timing.samples, n=4)
            times = (median(timing.forward), median(timing.backward), middle, low, high)
            cells = (point.flops[name], *times, timing.memory, len(timing.samples))
            rows.append(dict(zip(_COLUMNS, (name, point.n, point.d, *cells), strict=True)))
    return rows


def _figures(found: Measurements) -> list[Figure]:
    rows = _points(found)
    where = "saved for backward" if found.kind == "cpu" else "at the peak of a pass"
    time = Figure(
        name="time",
        spec=_draw_costs(rows, "seconds", "seconds forward and backward", "~g"),
        caption="Time of a pass forward and backward against the length n: a panel for each width "
        "d, a line for each layer, on logarithmic axes. Points are medians, bars quartiles.",
    )
    memory = Figure(
        name="memory",
        spec=_draw_costs(rows, "memory_bytes", f"bytes {where}", "~s"),
        caption="Memory against the length n: a panel for each width d, a line for each layer.",
    )
    return [time, memory] if rows else []


def _to_csv(rows: Sequence[Record]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for row in rows:
        writer.writerow(f"{x:.6g}" if isinstance(x, float) else x for x in row.values())
    return file.getvalue()


def _draw_costs(rows: Sequence[Record], field: str, title: str, form: str) -> Spec:
    """A cost against n on logarithmic axes: a panel for each d, a line for each layer.

    Args:
        rows: ``layer``, ``n``, ``d``, the field, and its range if it has one: of ``seconds`` from
            ``seconds_low`` to ``seconds_high``
        field: such as ``seconds``
        title: of the axis, with its unit
        form: of its labels, in d3's notation
    """
    names = list(dict.fromkeys(row["layer"] for row in rows))
    legend = {"orient": "bottom", "columns": 3, "title": None, "symbolOpacity": 1}
    colour, shape = (
        style.by("layer", dict(zip(names, looks, strict=False)), legend=legend)
        for looks in (style.COLOURS, style.SHAPES)
    )
    x = style.axis("n", "length n", log=True, form=",d")
    x["axis"]["values"] = [4**power for power in range(2, 7)]
    y = style.axis(field, title, log=True, form=form)
    y["axis"]["values"] = [10**power for power in range(-5, 12)]
    ends = [end for end in (f"{field}_low", f"{field}_high") if end in rows[0]]
    shown = {
        "x": x,
        "y": y,
        "color": colour,
        "tooltip": style.tooltip("layer", "n", "d", field, *ends),
    }
    layers = [
        style.layer("line", shown, strokeWidth=1.5),
        style.layer("point", {**shown, "shape": shape}, filled=True, size=35, opacity=1),
    ]
    if ends:
        bars = {"x": x, "y": {**y, "field": ends[0]}, "y2": {"field": ends[1]}, "color": colour}
        layers.insert(0, style.layer("rule", bars, strokeWidth=2, opacity=0.5))
    return style.figure(
        f"{title[0].upper()}{title[1:]}, by width d",
        data={"values": rows},
        columns=3,
        facet={
            "field": "d",
            "title": None,
            "header": {"labelExpr": "'d = ' + format(datum.value, ',')"},
        },
        resolve={"axis": {"x": "independent", "y": "independent"}},
        spec={"width": 230, "height": 210, "layer": layers},
    )
