"""A table's plots: differences, seeds and learning curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from ablations.figures.curves import Curve, curve_of, draw_curves, mean_curve
from ablations.report.labels import place_labels
from ablations.report.layout import Figure
from ablations.report.scores import WITHIN_NOISE, is_better
from ablations.report.size_figures import size_figures
from ablations.report.table_numbers import TableNumbers
from ablations.tables.trainings import Training
from experiments.figures import style
from experiments.figures.style import Record, Spec
from experiments.records.result import Measure

_WIDTH = 400
_WIDE, _HIGH = 480, 340  # for the agreement with the paper
_DASHED: Spec = {"strokeDash": [3, 3], "color": style.GREY}  # visible on light and dark pages
# By hue and by shape, for readers who cannot tell the colours apart.
_GOOD, _NOISE = (style.BLUE, "circle"), (style.GREY, "square")
_BAD, _NONE = (style.VERMILION, "triangle-up"), (style.GREY, "diamond")
_AGREEMENT: Mapping[str, tuple[str, str]] = {
    "agrees": _GOOD,
    "same sign": _GOOD,
    WITHIN_NOISE: _NOISE,
    "none in paper": _NONE,
    "other sign": _BAD,
    "contradicts": _BAD,
}
_VERDICTS: Mapping[str, tuple[str, str]] = {
    "better": _GOOD,
    "better, one seed": _GOOD,
    WITHIN_NOISE: _NOISE,
    "worse": _BAD,
    "worse, one seed": _BAD,
}


def table_figures(table: TableNumbers) -> Iterator[Figure]:
    """All plots for which there are enough values."""
    for measure in table.measures:
        rows = _differences(table, measure)
        in_paper = [row for row in rows if row["paper"] is not None]
        if in_paper:
            yield _without_diverged(table, draw_agreement(in_paper, measure))
        if rows:
            yield _without_diverged(table, _draw_differences(rows, measure))
        elif table.has_seeds:
            yield _draw_seeds(table, measure)
    yield from _curves(table)
    yield from size_figures(table)


def _without_diverged(table: TableNumbers, figure: Figure) -> Figure:
    """The figure with a caption that names the rows which are left out."""
    diverged = [row.name for row in table.rows if row.diverged]
    if not diverged:
        return figure
    left_out = f"Rows with a run that diverged are left out: {', '.join(diverged)}."
    return replace(figure, caption=f"{figure.caption} {left_out}")


def _differences(table: TableNumbers, measure: Measure) -> list[Record]:
    """The rows that may differ from the base, the best first.

    Rows with a run that diverged are left out, as a plateau would squeeze all others together.
    """
    base = table.base.scores[measure.name].by_seed if table.base else {}
    records: list[Record] = []
    for row in table.rows:
        score = row.scores[measure.name]
        ours = score.difference
        if ours is None or score.is_equal or row.diverged or not math.isfinite(ours.mean):
            continue
        low, high = ours.interval or (None, None)
        paper = score.paper_difference
        seeds = [value - base[seed] for seed, value in score.by_seed.items() if seed in base]
        verdict = score.verdict
        if not verdict:
            better = "better" if is_better(measure, ours.mean) else "worse"
            verdict = f"{better}, one seed" if ours.mean else WITHIN_NOISE
        records.append(
            {
                "row": row.name,
                "paper": None if paper is None else round(paper, 6),
                "ours": ours.mean,
                "low": low,
                "high": high,
                "each seed": seeds if len(seeds) > 1 else [],
                "agreement": score.agreement,
                "verdict": verdict,
                "others found": row.reference,
            }
        )
    highest_first = measure.direction == "maximize"
    return sorted(records, key=lambda record: record["ours"], reverse=highest_first)


def draw_agreement(rows: Sequence[Record], measure: Measure) -> Figure:
    """Each row's difference from the base, with its confidence interval, against the paper's."""
    # On a linear axis the large differences of a few rows would squeeze all others together.
    typical_paper = median(abs(row["paper"]) for row in rows) or 1
    typical_ours = median(abs(row["ours"]) for row in rows) or 1
    x = style.axis("paper", f"Δ {measure.title} in the paper", symlog=typical_paper)
    y = style.axis("ours", f"Δ {measure.title} here", symlog=typical_ours)
    labelled, labels = place_labels(rows, x, y, _WIDE, _HIGH)
    looks = style.looks("agreement", rows, _AGREEMENT, title=None, legend=style.LEGEND)
    shown = style.tooltip("row", "paper", "ours", "low", "high", "agreement")
    zero = {"datum": 0, "type": "quantitative"}
    layers = [
        style.layer("rule", {"x": zero}, data=[{}], **_DASHED),
        style.layer("rule", {"y": zero}, data=[{}], **_DASHED),
    ]
    with_intervals = ""
    if any(row["low"] is not None for row in rows):
        ends = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
        layers.append(_intervals({**ends, "color": looks["color"]}))
        with_intervals = ", with 95 % confidence intervals"
    layers += labels
    point = {"x": x, "y": y, **looks, "tooltip": shown}
    layers.append(style.layer("point", point, filled=True, size=70, opacity=1))
    spec = style.figure(
        f"{measure.title}: difference from the base, ours against the paper's",
        width=_WIDE,
        height=_HIGH,
        data={"values": labelled},
        layer=layers,
    )
    return Figure(
        name=f"agreement-{measure.name}",
        spec=spec,
        caption=f"{measure.title}: each row's difference from the base, the paper's across and "
        f"ours upwards{with_intervals}, on axes that are logarithmic except near 0. Rows in the "
        "lower left and upper right quarters change in the same direction.",
    )


def _intervals(encoding: Spec) -> Spec:
    """The confidence intervals of the rows that have one."""
    rules = style.layer("rule", encoding, strokeWidth=2, opacity=0.6)
    return {**rules, "transform": [{"filter": "isValid(datum.low)"}]}


def _draw_differences(rows: Sequence[Record], measure: Measure) -> Figure:
    """A forest plot: each row's difference from the base with its confidence interval."""
    x = style.axis("ours", f"Δ {measure.title}")
    order = [row["row"] for row in rows]
    y = {"field": "row", "sort": order, "title": None, "axis": {"grid": True}}
    looks = style.looks("verdict", rows, _VERDICTS, title=None, legend=style.LEGEND)
    shown = style.tooltip("row", "ours", "low", "high", "verdict", "others found")
    zero = {"x": {"datum": 0, "type": "quantitative"}}
    layers = [style.layer("rule", zero, data=[{}], **_DASHED)]
    caption = f"{measure.title}: each row's difference from the base, the best row at the top"
    if any(row["low"] is not None for row in rows):
        ends = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y}
        layers.append(_intervals({**ends, "color": looks["color"]}))
    if any(row["each seed"] for row in rows):
        seeds = {"x": {**x, "field": "each seed"}, "y": y}
        tick = style.layer("tick", seeds, color=style.GREY, size=9)
        layers.append({**tick, "transform": [{"flatten": ["each seed"]}]})
        caption += ", with its 95 % confidence interval and each seed as a tick"
    point = {"x": x, "y": y, **looks, "tooltip": shown}
    layers.append(style.layer("point", point, filled=True, size=60, opacity=1))
    if any(row["others found"] for row in rows):
        right, small = {"x": {"value": _WIDTH + 8}}, Spec(align="left", fontSize=10)
        cells = {**right, "y": y, "text": {"field": "others found"}}
        head = {**right, "y": {"value": -8}, "text": {"value": "others found"}}
        layers.append(style.layer("text", cells, **small))
        layers.append(style.layer("text", head, data=[{}], **small))
    spec = style.figure(
        f"{measure.title}: difference from the base",
        width=_WIDTH,
        height={"step": 17},
        data={"values": rows},
        layer=layers,
    )
    return Figure(name=f"differences-{measure.name}", spec=spec, caption=f"{caption}.")


def _draw_seeds(table: TableNumbers, measure: Measure) -> Figure:
    """Each seed as a point and each row's mean as a tick, in a table without differences."""
    values = [
        {"row": row.name, "seed": seed, "value": value}
        for row in table.rows
        for seed, value in row.scores[measure.name].by_seed.items()
        if math.isfinite(value)
    ]
    x, y = style.axis("value", measure.title), {"field": "row", "sort": None, "title": None}
    point = {"x": x, "y": y, "tooltip": style.tooltip("row", "seed", "value")}
    spec = style.figure(
        f"{measure.title} by seed",
        width=_WIDTH,
        height={"step": 17},
        data={"values": values},
        layer=[
            style.layer("tick", {"x": {"aggregate": "mean", **x}, "y": y}, thickness=2),
            style.layer("point", point, color=style.BLUE, size=35, opacity=0.9),
        ],
    )
    caption = f"{measure.title}: each seed as a point, each row's mean as a tick."
    return Figure(name=f"seeds-{measure.name}", spec=spec, caption=caption)


def _curves(table: TableNumbers) -> Iterator[Figure]:
    """Learning curves of all trainings that have a validation, finished or not."""
    curves: dict[Training | None, Curve] = {}  # named after the base, or after the first row
    for row in table.rows:
        if not row.runs:
            continue
        curve = mean_curve([curve_of(run) for run in row.runs])
        if curve.points and (row.is_base or row.training not in curves):
            curves[row.training] = curve
    base = table.base.name if table.base else None
    spec = draw_curves([*curves.values()], base, by_name=table.plan.is_compared)
    if spec is not None:
        panels = "a panel for each group of rows, " if table.plan.is_compared else ""
        yield Figure(
            name="curves",
            spec=spec,
            caption=f"Perplexity on the validation set during training: {panels}a line for each "
            f"{'training' if table.shared else 'row'} (the mean of its seeds), the base in grey.",
        )
