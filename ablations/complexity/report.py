"""The report of Table 1: the paper's table with our measurements next to its figures."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

from ablations.complexity.exponents import (
    crossings,
    exponents_tables,
    growth,
    power,
    steps_table,
)
from ablations.complexity.notes import facts, missing, notes
from ablations.complexity.paper import KINDS, TITLE, Kind
from ablations.complexity.results import Measurements, load, wanted_points
from ablations.figures.complexity import draw_costs
from ablations.files import CSV_FILE
from ablations.report.page import Column, Facts, Figure, Figures, Page, Table, Text, make_page
from ablations.report.write import write_page
from experiments.figures.style import Record


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
        ("Exponents", exponents_tables(found)),
        ("Dependent steps", [steps_table(found)]),
        ("Memory against length", [Figures(figures[1:])]),
        ("Not measured", [Text(tuple(missing(found)), style="problems", is_list=True)]),
        ("How to read it", [Text(tuple(notes(found)), is_list=True)]),
        ("Set-up", [Facts(tuple(facts(found)))]),
    )


def _table(found: Measurements) -> Table:
    """The paper's table with ours next to each of its columns."""
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
