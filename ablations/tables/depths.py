"""Deep encoder, shallow decoder.

A row is named after the layers of its encoder and its decoder; the base is 6-6. 10-3 and 2-9 have
as many weights as the base, apart from biases and gains: an attention has half the weights of a
feed-forward network, and a decoder layer has two attentions.
"""

from __future__ import annotations

from dataclasses import replace

from ablations.tables.scales import QUICK, SMALL
from ablations.tables.table import Row, Table, claim, row
from ablations.tables.table3 import BASE


def _depths(encoder: int, decoder: int, found: str = "") -> Row:
    options = {"encoder": encoder, "decoder": decoder}
    return claim(f"{encoder}-{decoder}", found, "reduced:DepthsTransformer", options=options)


# fmt: off
ROWS = (
    row("base"),

    # Kasai et al. 2021. Rows without a reference are not theirs.
    _depths(10, 3),
    _depths(2, 9),
    _depths(12, 1, "same"),
    _depths(1, 12),
    _depths(8, 4),
    _depths(4, 8),
    _depths(6, 1, "worse"),
    _depths(1, 6),
    _depths(18, 1),
)
# fmt: on

TABLE = Table(
    name="depths",
    title="Deep encoder, shallow decoder",
    base=BASE,
    rows=ROWS,
    scales=tuple(replace(scale, divide_layers=1) for scale in (QUICK, SMALL)),
    decoding_speed=True,
)
