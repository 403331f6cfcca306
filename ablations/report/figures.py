"""The plots of a table's report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from statistics import median

from ablations.figures.curves import Curve, curve_of, draw_curves, group_of, mean_curve
from ablations.report.labels import place_labels
from ablations.report.layout import Figure
from ablations.report.numbers import RowNumbers, TableNumbers
from ablations.report.scores import WITHIN_NOISE, is_better
from ablations.tables.trainings import Training
from experiments.figures import style
from experiments.figures.style import Record, Spec
from experiments.records.result import Measure

_WIDTH = 400
_WIDE, _HIGH = 480, 340  # for the agreement with the paper
_LEGEND: Spec = {"orient": "bottom", "symbolOpacity": 1}
_DASHED: Spec = {"strokeDash": [3, 3], "color": style.GREY}  # visible on light and dark pages
_INTERVAL: Spec = {"where": "isValid(datum.low)", "strokeWidth": 2, "opacity": 0.6}
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
# Fields of a result, the titles of their axes, and words for them.
_SIZES = {
    "parameters": ("parameters", "parameters of its model"),
    "flops": ("training FLOPs", "arithmetic of its training"),
}


def table_figures(table: TableNumbers) -> Iterator[Figure]:
    """All plots for which there are enough values."""
    for measure in table.measures:
        rows = _differences(table, measure)
        in_paper = [row for row in rows if row["paper"] is not None]
        if in_paper:
            yield draw_agreement(in_paper, measure)
        if rows:
            yield _draw_differences(rows, measure)
        elif table.has_seeds:
            yield _draw_seeds(table, measure)
    yield from _curves(table)
    for field, (title, words) in _SIZES.items():
        rows = list(_perplexities(table, field))
        if len(rows) > 1:
            yield Figure(
                name=f"perplexity-{field}",
                spec=_draw_against(rows, (field, title), ("perplexity", "Perplexity"), log=True),
                caption=f"Perplexity of each row against the {words}.",
            )
    rows = [record for row in table.rows for record in _bleu_and_flops(row)]
    if rows:
        score, size = ("test_bleu", "BLEU of the test set"), ("flops", _SIZES["flops"][0])
        yield Figure(
            name="bleu-flops",
            spec=_draw_against(rows, size, score, log=False),
            caption=f"{score[1]} against training FLOPs: ours by the arithmetic of the model, the "
            "paper's by time and nominal peak of the devices.",
        )


def _differences(table: TableNumbers, measure: Measure) -> list[Record]:
    """The rows that may differ from the base, the best first."""
    base = table.base.scores[measure.name].by_seed if table.base else {}
    records: list[Record] = []
    for row in table.rows:
        score = row.scores[measure.name]
        ours = score.difference
        if ours is None or score.is_equal or not math.isfinite(ours.mean):
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
    looks = style.looks("agreement", rows, _AGREEMENT, title=None, legend=_LEGEND)
    shown = style.tooltip("row", "paper", "ours", "low", "high", "agreement")
    zero = {"datum": 0, "type": "quantitative"}
    layers = [
        style.layer("rule", {"x": zero}, data=[{}], **_DASHED),
        style.layer("rule", {"y": zero}, data=[{}], **_DASHED),
    ]
    with_intervals = ""
    if any(row["low"] is not None for row in rows):
        ends = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
        layers.append(style.layer("rule", {**ends, "color": looks["color"]}, **_INTERVAL))
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


def _draw_differences(rows: Sequence[Record], measure: Measure) -> Figure:
    """A forest plot: each row's difference from the base with its confidence interval."""
    x = style.axis("ours", f"Δ {measure.title}")
    order = [row["row"] for row in rows]
    y = {"field": "row", "sort": order, "title": None, "axis": {"grid": True}}
    looks = style.looks("verdict", rows, _VERDICTS, title=None, legend=_LEGEND)
    shown = style.tooltip("row", "ours", "low", "high", "verdict", "others found")
    zero = {"x": {"datum": 0, "type": "quantitative"}}
    layers = [style.layer("rule", zero, data=[{}], **_DASHED)]
    caption = f"{measure.title}: each row's difference from the base, the best row at the top"
    if any(row["low"] is not None for row in rows):
        ends = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y}
        layers.append(style.layer("rule", {**ends, "color": looks["color"]}, **_INTERVAL))
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


def _perplexities(table: TableNumbers, field: str) -> Iterator[Record]:
    for row in table.rows:
        perplexity = row.means.get("perplexity")
        group = "base" if row.is_base else "rows"
        if table.plan.is_compared:
            group = group_of(row.name)
        if perplexity and math.isfinite(perplexity.mean):
            yield {
                "row": row.name,
                "group": group,
                "perplexity": perplexity.mean,
                field: row.means[field].mean,
            }


def _bleu_and_flops(row: RowNumbers) -> Iterator[Record]:
    """The points of a row of Table 2: the paper's and ours."""
    paper, ours = row.reported, row.means.get("test_bleu")
    if paper.flops is None:
        return
    language = row.settings["target_language"]
    point = {"row": row.name, "group": f"paper, {language}", "flops": paper.flops}
    if paper.test_bleu is not None:
        yield {**point, "test_bleu": paper.test_bleu}
    if ours is not None:
        flops = row.means["flops"].mean
        yield {**point, "group": f"ours, {language}", "flops": flops, "test_bleu": ours.mean}


def _draw_against(
    rows: Sequence[Record], size: tuple[str, str], score: tuple[str, str], *, log: bool
) -> Spec:
    """Each row's score against its size, each given as a field and the title of its axis."""
    form = "~s" if size[0] == "parameters" else exponent_form([row[size[0]] for row in rows])
    x = style.axis(*size, log=True, form=form)
    x["axis"] |= {"labelSeparation": 8}
    y = style.axis(*score, log=log)
    labelled, labels = place_labels(rows, x, y, _WIDTH, 300)
    labelled.sort(key=lambda row: row["group"] == "base")  # the base is drawn on top
    colours, shapes = cycle(style.COLOURS), cycle(style.SHAPES)
    marks: dict[str, tuple[str, str]] = {}
    for group in dict.fromkeys(row["group"] for row in rows):
        marks[group] = style.GREY if group == "base" else next(colours), next(shapes)
    shown = style.tooltip("row", size[0], score[0])
    looks = style.looks("group", rows, marks, title=None, legend=_LEGEND)
    point = {"x": x, "y": y, **looks, "tooltip": shown}
    return style.figure(
        f"{score[1]} against {size[1]}",
        width=_WIDTH,
        height=300,
        data={"values": labelled},
        layer=[*labels, style.layer("point", point, filled=True, size=70, opacity=1)],
    )


def exponent_form(values: Sequence[float]) -> str:
    """The format of axis labels such as 3.3e+13, with enough decimals to tell values apart."""
    known = [value for value in values if value > 0]
    share = (
        max(known) / min(known) - 1 if known else 0.0
    )  # what the axis spans, over its least value
    decimals = 1 if share >= 1 else 1 + math.ceil(-math.log10(max(share, 0.001)))
    return f".{decimals}~e"
