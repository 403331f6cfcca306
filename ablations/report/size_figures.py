"""Plots of scores against the size of model or training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import cycle

from ablations.figures.curves import group_of
from ablations.report.labels import place_labels
from ablations.report.layout import Figure
from ablations.report.table_numbers import RowNumbers, TableNumbers
from experiments.figures import style
from experiments.figures.style import Record, Spec

_WIDTH, _HEIGHT = 400, 300
# Fields of a result, the titles of their axes, and words for them.
_SIZES = {
    "parameters": ("parameters", "parameters of its model"),
    "flops": ("training FLOPs", "arithmetic of its training"),
}


def size_figures(table: TableNumbers) -> Iterator[Figure]:
    """The plots for which there are enough values."""
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


def _perplexities(table: TableNumbers, field: str) -> Iterator[Record]:
    for row in table.rows:
        perplexity = row.means.get("perplexity")
        group = "base" if row.is_base else "rows"
        if table.plan.is_compared:
            group = group_of(row.name)
        if perplexity and not row.diverged and math.isfinite(perplexity.mean):
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
    labelled, labels = place_labels(rows, x, y, _WIDTH, _HEIGHT)
    labelled.sort(key=lambda row: row["group"] == "base")  # the base is drawn on top
    colours, shapes = cycle(style.COLOURS), cycle(style.SHAPES)
    marks: dict[str, tuple[str, str]] = {}
    for group in dict.fromkeys(row["group"] for row in rows):
        marks[group] = style.GREY if group == "base" else next(colours), next(shapes)
    shown = style.tooltip("row", size[0], score[0])
    looks = style.looks("group", rows, marks, title=None, legend=style.LEGEND)
    point = {"x": x, "y": y, **looks, "tooltip": shown}
    return style.figure(
        f"{score[1]} against {size[1]}",
        width=_WIDTH,
        height=_HEIGHT,
        data={"values": labelled},
        layer=[*labels, style.layer("point", point, filled=True, size=70, opacity=1)],
    )


def exponent_form(values: Sequence[float]) -> str:
    """The format of axis labels such as 3.3e+13, with enough decimals to tell values apart."""
    known = [value for value in values if value > 0]
    share = max(known) / min(known) - 1 if known else 0.0  # the axis's span over its least value
    decimals = 1 if share >= 1 else 1 + math.ceil(-math.log10(max(share, 0.001)))
    return f".{decimals}~e"
