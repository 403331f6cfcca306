"""The figures of Table 1: what a pass through each layer costs against the length."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.figures.style import COLOURS, SHAPES, Record, Spec, axis, figure, tooltip


def draw_costs(rows: Sequence[Record], field: str, title: str, form: str) -> Spec:
    """A cost against n on logarithmic axes: a panel for each d, a line for each layer.

    Args:
        rows: ``layer``, ``n``, ``d`` and the field; and ``low`` and ``high``, its range, or None
        field: such as ``seconds``
        title: of the axis, with its unit
        form: of its labels, in d3's notation
    """
    legend = {"orient": "bottom", "columns": 3, "title": None, "symbolOpacity": 1}
    names = list(dict.fromkeys(row["layer"] for row in rows))
    by_layer = {
        channel: {
            "field": "layer",
            "legend": legend,
            "scale": {"domain": names, "range": values[: len(names)]},
        }
        for channel, values in (("color", COLOURS), ("shape", SHAPES))
    }
    x = axis("n", "length n", log=True, form=",d")
    x["axis"]["values"] = [4**power for power in range(2, 7)]
    y = axis(field, title, log=True, form=form)
    y["axis"]["values"] = [10**power for power in range(-5, 12)]
    colour = {"color": by_layer["color"]}
    encoding = {"x": x, "y": y, "tooltip": tooltip("layer", "n", "d", field, "low", "high")}
    layers = [
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.5},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, **colour},
        },
        {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {**encoding, **colour}},
        {
            "mark": {"type": "point", "filled": True, "size": 35, "opacity": 1},
            "encoding": {**encoding, **by_layer},
        },
    ]
    panels = [
        {
            "title": f"d = {d:,}",
            "width": 230,
            "height": 210,
            "data": {"values": [row for row in rows if row["d"] == d]},
            "layer": layers,
        }
        for d in dict.fromkeys(row["d"] for row in sorted(rows, key=lambda row: row["d"]))
    ]
    return figure(
        f"{title[0].upper()}{title[1:]}, by width d",
        columns=3,
        concat=panels,
        resolve={"scale": {"x": "shared", "y": "shared"}},
    )
