"""The figures of Table 1: what a pass through each layer costs against the length."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.figures.style import COLOURS, SHAPES, Record, Spec, axis, figure, tooltip

_TOOLTIP = ("layer", "n", "d")


def draw_costs(rows: Sequence[Record], field: str, title: str, form: str) -> Spec:
    """A cost against n on logarithmic axes: a panel for each d, a line for each layer.

    Args:
        rows: ``layer``, ``n``, ``d`` and the field; and ``low`` and ``high``, its range, or None
        field: such as ``seconds``
        title: of the axis, with its unit
        form: of its labels, in d3's notation
    """
    names = list(dict.fromkeys(row["layer"] for row in rows))
    legend = {"orient": "bottom", "columns": 3, "title": None}
    by_layer = {
        channel: {
            "field": "layer",
            "legend": legend,
            "scale": {"domain": names, "range": values[: len(names)]},
        }
        for channel, values in (("color", COLOURS), ("shape", SHAPES))
    }
    # Powers of two have long labels, so every other one is left out.
    x = axis("n", "length n", log=True, form="~d")
    x["axis"] |= {"values": [4**power for power in range(2, 7)]}
    x["scale"] |= {"base": 2}
    y = axis(field, title, log=True, form=form)
    encoding = {"x": x, "y": y, "tooltip": tooltip(*_TOOLTIP, field, "low", "high")}
    colour = {"color": by_layer["color"]}
    interval = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, **colour}
    return figure(
        f"{title}, by width d",
        data={"values": rows},
        facet={
            "field": "d",
            "type": "ordinal",
            "title": None,
            "header": {"labelExpr": "'d = ' + datum.label"},
        },
        columns=3,
        spec={
            "width": 230,
            "height": 210,
            "layer": [
                {
                    "transform": [{"filter": "isValid(datum.low)"}],
                    "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.5},
                    "encoding": interval,
                },
                {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {**encoding, **colour}},
                {
                    "mark": {"type": "point", "filled": True, "size": 35, "opacity": 1},
                    "encoding": {**encoding, **by_layer},
                },
            ],
        },
    )
