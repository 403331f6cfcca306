"""Place the labels of points without overlaps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from experiments.figures import style
from experiments.figures.style import Record, Spec

_LETTER, _LINE = 6, 11  # width of a label's letter and height of its line, in pixels
# Where a label may be, the nearest first: pixels below its point, and right (1) or left (-1) of it.
_PLACES = [(below, side) for below in sorted(range(-90, 91, 3), key=abs) for side in (1, -1)]


def place_labels(
    rows: Sequence[Record], x: Spec, y: Spec, width: int, height: int
) -> tuple[list[Record], list[Spec]]:
    """The rows with places for their labels, and the layers that draw these labels.

    A label far from its point gets a line to it. ``x`` and ``y`` are the axes, ``width`` and
    ``height`` the size of the plot in pixels.
    """
    points = zip(_pixels(rows, x, width), _pixels(rows, y, height), strict=True)
    # Boxes that are one line high, by their centres and half their widths.
    taken = np.array([(across, up, _LETTER) for across, up in points])
    labelled: list[Record] = []
    from_the_top = sorted(zip(rows, taken, strict=True), key=lambda pair: -pair[1][1])
    for row, (across, up, _) in from_the_top:
        half = _LETTER * len(row["row"]) // 2
        boxes = np.array(
            [(across + side * (8 + half), up - below, half) for below, side in _PLACES]
        )
        gaps = np.abs(boxes[:, None] - taken)
        apart = (gaps[..., 0] >= boxes[:, None, 2] + taken[:, 2]) | (gaps[..., 1] >= _LINE)
        place = apart.all(axis=1).argmax()  # the nearest free place, or else the nearest
        taken = np.vstack([taken, boxes[place]])
        below, side = _PLACES[place]
        labelled.append({**row, "below": below, "side": side})
    down: Spec = {"expr": "datum.below"}
    layers: list[Spec] = []
    far = [row for row in labelled if abs(row["below"]) > _LINE]
    if far:
        ends = {"x": x, "y": y, "x2": {"field": x["field"]}, "y2": {"field": y["field"]}}
        offset: Spec = {"x2Offset": {"expr": "6 * datum.side"}, "y2Offset": down}
        layers.append(style.layer("rule", ends, data=far, color=style.GREY, **offset))
    align = {"expr": "datum.side > 0 ? 'left' : 'right'"}
    beside: Spec = {"align": align, "dx": {"expr": "8 * datum.side"}, "dy": down}
    text = {"x": x, "y": y, "text": {"field": "row"}}
    layers.append(style.layer("text", text, fontSize=10, **beside))
    return labelled, layers


def _pixels(rows: Sequence[Record], axis: Spec, length: int) -> list[float]:
    """Roughly where the rows lie along an axis of this length, up to a shift."""
    scale, values = axis["scale"], [row[axis["field"]] for row in rows]
    if scale.get("type") == "log":
        # A damaged result may hold any number.
        values = [math.log(value) if value > 0 else 0.0 for value in values]
    elif "constant" in scale:
        constant = scale["constant"]
        values = [math.copysign(math.log1p(abs(value) / constant), value) for value in values]
    span = max(values) - min(values)
    return [length * value / (span or 1) for value in values]
