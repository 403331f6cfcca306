"""The figures of a table's report, from its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median

from ablations.figures.curves import draw_curves, group_of, mean_curve, read_curve
from ablations.report.layout import Figure
from ablations.report.numbers import Agreement, RowNumbers, TableNumbers
from ablations.runs.attempts import locate
from ablations.tables.table import Cell
from experiments.figures import style
from experiments.figures.style import Record, Spec
from experiments.records.result import Measure

_WIDTH, _HEIGHT = 400, 300
_AGREEMENT_WIDTH, _AGREEMENT_HEIGHT = 480, 340
_LETTER = 6  # the width of one in a label, in pixels like the figures
_TEXT: Spec = {"align": "left", "dx": 7, "fontSize": 10}
# By hue and by shape, for readers who cannot tell the colours apart.
_AGREEMENT = {
    Agreement.AGREES: (style.BLUE, "circle"),
    Agreement.SAME_SIGN: (style.BLUE, "circle"),
    Agreement.WITHIN_NOISE: (style.GREY, "square"),
    Agreement.NONE_IN_PAPER: (style.GREY, "diamond"),
    Agreement.OTHER_SIGN: (style.VERMILION, "triangle-up"),
    Agreement.CONTRADICTS: (style.VERMILION, "triangle-up"),
}
_SIZES = {
    "parameters": ("parameters", "parameters of its model"),
    "flops": ("training FLOPs", "arithmetic of its training"),
}


def table_figures(table: TableNumbers) -> Iterator[Figure]:
    """All figures for which there are enough values."""
    for measure in table.measures:
        if rows := list(_compared(table, measure)):
            yield draw_agreement(rows, measure, ", with 95 % intervals" * table.has_seeds)
    if table.has_seeds:
        yield from (_seeds(table, measure) for measure in table.measures)
    yield from _curves(table)
    for field, (title, words) in _SIZES.items():
        if len(rows := list(_sizes(table, field))) > 1:
            spec = _against(rows, (field, title), ("perplexity", "Perplexity"), log=True)
            caption = f"Perplexity of each row against the {words}."
            yield Figure(name=f"perplexity-{field}", spec=spec, caption=caption)
    if rows := [record for row in table.rows for record in _bleu_and_flops(row)]:
        label = "BLEU of the test set"
        yield Figure(
            name="bleu-flops",
            spec=_against(rows, ("flops", "training FLOPs"), ("test_bleu", label), log=False),
            caption=f"{label} against training FLOPs: ours by the arithmetic of the model, the "
            "paper's by time and nominal peak of the devices.",
        )


def _compared(table: TableNumbers, measure: Measure) -> Iterator[Record]:
    for row in table.rows:
        score = row.scores[measure.name]
        ours, paper = score.difference, score.paper_difference
        if ours is not None and paper is not None and math.isfinite(ours.mean):
            low, high = ours.interval or (None, None)
            differences = {"paper": round(paper, 6), "ours": ours.mean, "low": low, "high": high}
            yield {"row": row.name, **differences, "agreement": score.agreement}


def draw_agreement(rows: Sequence[Record], measure: Measure, bounds: str) -> Figure:
    """Each row's difference from the base here against the paper's, with its interval."""
    # The large differences of a few rows would press all others together on a linear axis.
    typical = {name: median(abs(row[name]) for row in rows) or 1 for name in ("paper", "ours")}
    x = style.axis("paper", f"Δ {measure.title} in the paper", symlog=typical["paper"])
    y = style.axis("ours", f"Δ {measure.title} here", symlog=typical["ours"])
    known = [word for word in _AGREEMENT if word in {row["agreement"] for row in rows}]
    colour, shape = (
        style.by("agreement", {word: _AGREEMENT[word][look] for word in known}, title="sign of Δ")
        for look in (0, 1)
    )
    shown = style.tooltip("row", "paper", "ours", "low", "high", "agreement")
    zero = {"datum": 0, "type": "quantitative"}
    dashed: Spec = {"strokeDash": [3, 3], "opacity": 0.6}
    ends = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour}
    interval = style.layer("rule", ends, where="isValid(datum.low)", strokeWidth=2, opacity=0.6)
    point = {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": shown}
    text = {"x": x, "y": y, "text": {"field": "row"}}
    places = _label_places(rows, typical)
    spec = style.figure(
        f"{measure.title}: difference from the base, ours against the paper's",
        width=_AGREEMENT_WIDTH,
        height=_AGREEMENT_HEIGHT,
        data={"values": [{**row, "place": place} for row, place in zip(rows, places, strict=True)]},
        layer=[
            style.layer("rule", {"x": zero}, data=[{}], **dashed),
            style.layer("rule", {"y": zero}, data=[{}], **dashed),
            *[interval] * any(row["low"] is not None for row in rows),
            style.layer("point", point, filled=True, size=70, opacity=1),
            style.layer("text", text, where={"field": "place", "equal": "above"}, dy=-4, **_TEXT),
            style.layer("text", text, where={"field": "place", "equal": "below"}, dy=12, **_TEXT),
        ],
    )
    return Figure(
        name=f"agreement-{measure.name}",
        spec=spec,
        caption=f"{measure.title}: each row's difference from the base, the paper's from left "
        f"to right and ours upwards{bounds}, on scales that are logarithmic but near 0. "
        "Rows in the lower left and upper right quarters change in the same direction.",
    )


def _label_places(rows: Sequence[Record], typical: Mapping[str, float]) -> list[str]:
    """``below`` for each row whose label would cover the point to its right, else ``above``."""
    xs = _pixels([row["paper"] for row in rows], typical["paper"], _AGREEMENT_WIDTH)
    ys = _pixels([row["ours"] for row in rows], typical["ours"], _AGREEMENT_HEIGHT)

    def is_in_the_way(row: Record, x: float, y: float) -> bool:
        length = _LETTER * (1 + len(row["row"]))
        points = zip(xs, ys, strict=True)
        return any(0 < right - x < length and abs(at - y) < 2 * _LETTER for right, at in points)

    points = zip(rows, xs, ys, strict=True)
    return ["below" if is_in_the_way(*point) else "above" for point in points]


def _pixels(values: Sequence[float], constant: float, length: int) -> list[float]:
    """Where ``values`` lie on a symlog axis of ``length`` pixels, but for a shift."""
    logs = [math.copysign(math.log1p(abs(value) / constant), value) for value in values]
    return [length * log / (max(logs) - min(logs) or 1) for log in logs]


def _seeds(table: TableNumbers, measure: Measure) -> Figure:
    """Each seed as a point and each row's mean as a tick, the base's mean as a line."""
    runs = [
        {"row": row.name, "seed": result.seed, "value": value, "is_base": row.is_base}
        for row in table.rows
        for result in row.results
        if math.isfinite(value := float(getattr(result, measure.name) or math.nan))
    ]
    x = style.axis("value", measure.title)
    order = list(dict.fromkeys(run["row"] for run in runs))
    y = {"field": "row", "sort": order, "title": None, "axis": {"grid": True}}
    mean = {"aggregate": "mean", **x}
    point = {"x": x, "y": y, "tooltip": style.tooltip("row", "seed", "value")}
    spec = style.figure(
        f"{measure.title} by seed",
        width=_WIDTH,
        height={"step": 15},
        data={"values": runs},
        layer=[
            style.layer(
                "rule", {"x": mean}, where="datum.is_base", color=style.GREY, strokeDash=[3, 3]
            ),
            style.layer("tick", {"x": mean, "y": y}, thickness=2),
            style.layer("point", point, color=style.BLUE, size=35, opacity=0.9),
        ],
    )
    return Figure(
        name=f"seeds-{measure.name}",
        spec=spec,
        caption=f"{measure.title} of each seed as a point, of each row's mean as a tick; the "
        "dashed line is the base's mean.",
    )


def _curves(table: TableNumbers) -> Iterator[Figure]:
    """Learning curves of all rows that have been validated, finished or not."""
    curves = [
        mean_curve([read_curve(locate(x.directory(table.directory)), x.row, x.seed) for x in cells])
        for row in table.rows
        if (cells := [Cell(row.name, seed) for seed in row.seeds])
    ]
    spec = draw_curves(curves, table.base and table.base.name, by_name=table.plan.is_compared)
    if spec is not None:
        yield Figure(
            name="curves",
            spec=spec,
            caption="Perplexity on the validation set during training: "
            f"{'a panel for each group of rows, ' * table.plan.is_compared}a line for each row "
            "(the mean of its seeds), the base in grey.",
        )


def _sizes(table: TableNumbers, field: str) -> Iterator[Record]:
    for row in table.rows:
        perplexity, group = row.means.get("perplexity"), "base" if row.is_base else "rows"
        if perplexity and math.isfinite(perplexity.mean):
            yield {
                "row": row.name,
                "group": group_of(row.name) if table.plan.is_compared else group,
                "perplexity": perplexity.mean,
                field: fmean(float(getattr(result, field)) for result in row.results),
            }


def _bleu_and_flops(row: RowNumbers) -> Iterator[Record]:
    """The paper's point of a row of Table 2, and ours."""
    paper, ours = row.reported, row.means.get("test_bleu")
    language = row.settings["target_language"]
    if paper.flops is None:
        return
    point = {"row": row.name, "group": f"paper, {language}", "flops": paper.flops}
    if paper.test_bleu is not None:
        yield {**point, "test_bleu": paper.test_bleu}
    if ours is not None:
        flops = fmean(result.flops for result in row.results)
        yield {**point, "group": f"ours, {language}", "flops": flops, "test_bleu": ours.mean}


def _against(
    rows: Sequence[Record], size: tuple[str, str], score: tuple[str, str], *, log: bool
) -> Spec:
    """A score of each row against a size: their fields and the titles of their axes."""
    x = style.axis(*size, log=True, form="~s" if size[0] == "parameters" else ".1~e")
    y = style.axis(*score, log=log)
    groups = list(dict.fromkeys(row["group"] for row in rows))
    colours = iter(style.COLOURS * len(groups))
    colour = style.by("group", {x: style.GREY if x == "base" else next(colours) for x in groups})
    shape = {"field": "group", "scale": {"domain": groups, "range": style.SHAPES}}
    shown = style.tooltip("row", size[0], score[0])
    point = {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": shown}
    text = {"x": x, "y": y, "text": {"field": "row"}}
    return style.figure(
        f"{score[1]} against {size[1]}",
        width=_WIDTH,
        height=_HEIGHT,
        data={"values": rows},
        layer=[
            style.layer("point", point, filled=True, size=70, opacity=1),
            style.layer("text", text, **_TEXT),
        ],
    )
