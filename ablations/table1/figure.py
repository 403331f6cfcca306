"""Vega-Lite figures of Table 1: the cost of a pass against the length."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.figures import style
from experiments.figures.style import Record, Spec


def draw_costs(rows: Sequence[Record], field: str, title: str, form: str) -> Spec:
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
