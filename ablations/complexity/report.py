"""The report of Table 1: the paper's table with our measurements next to its figures."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

from ablations.complexity.exponents import (
    crossings,
    exponents_grids,
    growth,
    power,
    steps_grid,
)
from ablations.complexity.notes import facts, missing, notes
from ablations.complexity.paper import KINDS, TITLE
from ablations.complexity.results import Measurements, load, wanted_points
from ablations.figures.complexity import draw_costs
from ablations.files import CSV_FILE
from ablations.report.layout import Column, Figure, Grid
from ablations.report.write import write_files
from experiments.figures.style import Record

TEMPLATE = Path(__file__).parent / "templates" / "layers.j2"


def write_layers_report(directory: Path) -> str:
    """Write the report into a directory: HTML, Markdown, CSV and figures.

    Returns:
        The report for the terminal.

    Raises:
        InputError: if the directory has no measurements of Table 1.
    """
    found = load(directory)
    figures = list(_figures(found))
    return write_files(directory, TEMPLATE, _values(found), figures, {CSV_FILE: _to_csv(found)})


def _values(found: Measurements) -> dict[str, object]:
    """The values of the templates for measurements, finished or not."""
    return {
        "title": TITLE,
        "headline": f"{len(found.points)} of {len(wanted_points())} pairs of length n and width d "
        f"measured on {found.setting.device}, torch {found.setting.torch}, fp32, one sequence at a "
        "time.",
        "layers": layers_grid(found),
        "crossings": crossings(found),
        "exponents": exponents_grids(found),
        "steps": steps_grid(found),
        "missing": list(missing(found)),
        "notes": list(notes(found)),
        "facts": list(facts(found)),
    }


def layers_grid(found: Measurements) -> Grid:
    """The paper's table with ours next to each of its columns."""
    paths = [[growth(found, "path", *path) for path in kind.paths[:1]] for kind in KINDS]
    operations = [growth(found, "sequential", kind.name, kind.sequential) for kind in KINDS]
    in_paper = [
        [f"O({each})" for each in (kind.complexity, kind.sequential, kind.path)] for kind in KINDS
    ]
    complexity, sequential, path = map(list, zip(*in_paper, strict=True))
    steps, length = "sequential operations", "maximum path length"
    flops, time = ([power(found, x.name, cost) for x in KINDS] for cost in ("FLOPs", "time"))
    return Grid(
        [
            Column("layer", [x.name if x.in_table else f"{x.name} *" for x in KINDS]),
            Column("paper", complexity, "complexity", "theirs"),
            Column("FLOPs", flops, "complexity", "ours", optional=1),
            Column("time", time, "complexity", "ours"),
            Column("", operations, steps, "ours"),
            Column("paper", sequential, steps, "theirs"),
            Column("", ["".join(each) for each in paths], length, "ours"),
            Column("paper", path, length, "theirs"),
        ]
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
