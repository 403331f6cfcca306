"""The figures of a table's report, from its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median

from ablations.figures.curves import draw_curves, group_of, mean_curve, read_curve
from ablations.report.layout import Figure
from ablations.report.numbers import Agreement, RowNumbers, TableNumbers, by_seed
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
_VERDICTS = {
    "better": (style.BLUE, "circle"),
    "better, one seed": (style.BLUE, "circle"),
    Agreement.WITHIN_NOISE: (style.GREY, "square"),
    "worse": (style.VERMILION, "triangle-up"),
    "worse, one seed": (style.VERMILION, "triangle-up"),
}


def table_figures(table: TableNumbers) -> Iterator[Figure]:
    """All figures for which there are enough values."""
    for measure in table.measures:
        if rows := list(_compared(table, measure)):
            yield draw_agreement(rows, measure, ", with 95 % intervals" * table.has_seeds)
    for measure in table.measures:
        if rows := _differences(table, measure):
            yield _draw_differences(table, rows, measure)
    yield from _curves(table)
    if len(rows := list(_sizes(table))) > 1:
        sizes, scores = ("parameters", "parameters"), ("perplexity", "Perplexity")
        caption = "Perplexity of each row against the parameters of its model."
        spec = _against(rows, sizes, scores, log=True)
        yield Figure(name="perplexity-parameters", spec=spec, caption=caption)
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


def _differences(table: TableNumbers, measure: Measure) -> list[Record]:
    """The rows that can be compared with the base, the best first."""
    found: list[Record] = []
    for row in table.rows:
        score = row.scores[measure.name]
        if (ours := score.difference) is None or not math.isfinite(ours.mean):
            continue
        low, high = ours.interval or (None, None)
        sign = "lower" if ours.mean < 0 else "higher"
        better = sign == ("lower" if measure.direction == "minimize" else "higher")
        verdict = score.verdict or ("better" if better else "worse") + ", one seed"
        record = {"row": row.name, "difference": ours.mean, "low": low, "high": high}
        found.append({**record, "verdict": verdict, "others found": row.reference})
    by_difference = sorted(found, key=lambda record: record["difference"])
    return by_difference if measure.direction == "minimize" else by_difference[::-1]


def _draw_differences(table: TableNumbers, rows: Sequence[Record], measure: Measure) -> Figure:
    """A forest plot: a line for each row with its difference from the base and the interval."""
    x = style.axis("difference", f"Δ {measure.title}")
    order = [row["row"] for row in rows]
    y = {"field": "row", "sort": order, "title": None, "axis": {"grid": True}}
    known = [word for word in _VERDICTS if word in {row["verdict"] for row in rows}]
    colour, shape = (
        style.by(
            "verdict",
            {word: _VERDICTS[word][look] for word in known},
            title=None,
            legend={"orient": "bottom", "symbolOpacity": 1},
        )
        for look in (0, 1)
    )
    shown = style.tooltip("row", "difference", "low", "high", "verdict", "others found")
    seeds = list(_differences_by_seed(table, order, measure.name))
    ends = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, "color": colour}
    interval = style.layer("rule", ends, where="isValid(datum.low)", strokeWidth=2, opacity=0.6)
    point = {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": shown}
    of_seed = {"x": x, "y": y, "tooltip": style.tooltip("row", "seed", "difference")}
    right = {"x": {"value": _WIDTH + 8}}
    found = {**right, "y": y, "text": {"field": "others found"}}
    head = {**right, "y": {"value": -8}, "text": {"value": "others found"}}
    references = [style.layer("text", found, align="left", fontSize=10)]
    references.append(style.layer("text", head, data=[{}], align="left", fontSize=10))
    zero = {"x": {"datum": 0, "type": "quantitative"}}
    spec = style.figure(
        f"{measure.title}: difference from the base",
        width=_WIDTH,
        height={"step": 17},
        data={"values": rows},
        layer=[
            style.layer("rule", zero, data=[{}], strokeDash=[3, 3], opacity=0.6),
            *[interval] * any(row["low"] is not None for row in rows),
            *[style.layer("tick", of_seed, data=seeds, color=style.GREY, size=9)] * bool(seeds),
            style.layer("point", point, filled=True, size=60, opacity=1),
            *references * any(row["others found"] for row in rows),
        ],
    )
    caption = f"{measure.title}: each row's difference from the base, the best row at the top"
    if table.has_seeds:
        caption += ", with its 95 % interval and each seed as a tick"
    return Figure(name=f"differences-{measure.name}", spec=spec, caption=f"{caption}.")


def _differences_by_seed(table: TableNumbers, rows: Sequence[str], name: str) -> Iterator[Record]:
    """The differences of which a mean is taken, in rows of several seeds."""
    base = {} if table.base is None else by_seed(table.base, name)
    for row in (row for row in table.rows if row.name in rows):
        common = {x: y - base[x] for x, y in by_seed(row, name).items() if x in base}
        if len(common) > 1:
            for seed, difference in common.items():
                yield {"row": row.name, "seed": seed, "difference": difference}


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


def _sizes(table: TableNumbers) -> Iterator[Record]:
    for row in table.rows:
        perplexity, group = row.means.get("perplexity"), "base" if row.is_base else "rows"
        if perplexity and math.isfinite(perplexity.mean):
            yield {
                "row": row.name,
                "group": group_of(row.name) if table.plan.is_compared else group,
                "perplexity": perplexity.mean,
                "parameters": row.results[0].parameters,
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
