"""Colours, axes and sizes of all plots."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

VEGA_LITE = "6.4"
Spec = dict[str, Any]
Record = Mapping[str, Any]

# Okabe and Ito's palette, which people with any colour vision can tell apart.
BLUE, VERMILION, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, GREY = "#E69F00", "#56B4E9", "#767676"
COLOURS = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY)
LEGEND = {"orient": "bottom", "symbolOpacity": 1}
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")

_UNNAMED = {"aria": False}
# No XML, and so no SVG, may hold these.
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST_LETTERS = 200  # of a text in a plot; ten thousand take half a minute to draw


def figure(title: str | Spec, **spec: Any) -> Spec:
    """A specification with the settings that all plots share, of values that can be drawn."""
    shared: Spec = {
        "$schema": f"https://vega.github.io/schema/vega-lite/v{VEGA_LITE.split('.')[0]}.json",
        "title": title,
        "background": None,
        "config": {
            "view": {"strokeOpacity": 0.25},
            "axis": {"gridOpacity": 0.4, **_UNNAMED},
            # A page says in words what a plot shows; a name for each mark would only be noise.
            **dict.fromkeys(("legend", "mark", "title"), _UNNAMED),
            **_UNNAMED,
        },
    }
    return _drawable({**shared, **spec})


def _drawable(value: Any) -> Any:
    """A part of a specification with texts that an SVG can hold. Numbers that are not finite, which
    JSON does not have, become null, which Vega leaves out.
    """
    if isinstance(value, str):
        text = _NOT_IN_XML.sub("", value)
        return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: _drawable(x) for name, x in cast(Mapping[str, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_drawable(x) for x in cast(Sequence[Any], value)]
    return value


def axis(
    field: str,
    title: str,
    *,
    log: bool = False,
    symlog: float | None = None,
    form: str | None = None,
) -> Spec:
    """The encoding of a number along an axis, which need not begin at zero.

    Args:
        symlog: for numbers of both signs; the axis is logarithmic far above this number
        form: the format of its labels, in d3's notation
    """
    scale: Spec = {"type": "log", "nice": False} if log else {"zero": False}
    if symlog is not None:
        scale |= {"type": "symlog", "constant": symlog}
    scale["padding"] = 12  # so that no point lies on the frame
    labels: Spec = {} if form is None else {"format": form}
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": scale,
        "axis": {"labelOverlap": True, **labels},
    }


def tooltip(*fields: str) -> Sequence[Spec]:
    """The fields that a page shows for the point under the pointer."""
    return [{"field": field} for field in fields]


def layer(mark: str, encoding: Spec, *, data: Sequence[Record] | None = None, **style: Any) -> Spec:
    """A layer of marks, of its own ``data`` or of that of all layers."""
    spec: Spec = {"mark": {"type": mark, **style}, "encoding": encoding}
    if data is not None:
        spec["data"] = {"values": data}
    return spec


def lines(encoding: Spec, values: Sequence[Record], *names: str, **style: Any) -> Sequence[Spec]:
    """A line for each series of ``values``, or a point if the series has a single value.

    Args:
        names: the fields that tell one series from another
    """
    counts = Counter(tuple(record[name] for name in names) for record in values)
    alone = [x for x in values if counts[tuple(x[name] for name in names)] == 1]
    layers = [layer("line", encoding, data=values, **style)]
    if alone:
        layers.append(layer("point", encoding, data=alone, filled=True, size=40, opacity=1))
    return layers


def looks(
    field: str, rows: Sequence[Record], marks: Mapping[str, tuple[str, str]], **more: Any
) -> dict[str, Spec]:
    """The encodings that give each name in ``rows`` its colour and shape of ``marks``."""
    known = {name: mark for name, mark in marks.items() if name in {row[field] for row in rows}}
    return {
        channel: {
            "field": field,
            "scale": {"domain": [*known], "range": [mark[place] for mark in known.values()]},
            **more,
        }
        for place, channel in enumerate(("color", "shape"))
    }
