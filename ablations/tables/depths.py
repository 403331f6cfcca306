"""Deep encoder, shallow decoder.

A row is named after the layers of its encoder and its decoder; the base is 6-6. 10-3 and 2-9 have
as many weights as the base, apart from biases and gains: an attention has half the weights of a
feed-forward network, and a decoder layer has two attentions.

``depths-pre-norm`` has the same rows with pre-norm, as deep post-norm stacks collapse at ``small``.
"""

from __future__ import annotations

from dataclasses import replace

from ablations.tables.scales import QUICK, SMALL
from ablations.tables.table import Row, Table, claim, row
from ablations.tables.table3 import BASE
from transformer.config import override
from transformer.variant import variant_name

# Layers of the encoder and of the decoder.
STACKS = ((10, 3), (2, 9), (12, 1), (1, 12), (8, 4), (4, 8), (6, 1), (1, 6), (18, 1))
FOUND = {(12, 1): "same", (6, 1): "worse"}  # Kasai et al. 2021


def rows(model: str) -> tuple[Row, ...]:
    """The base and a row of ``model`` for each pair of stacks."""
    stacks = (
        claim(
            f"{encoder}-{decoder}",
            FOUND.get((encoder, decoder), ""),
            model,
            options={"encoder": encoder, "decoder": decoder},
        )
        for encoder, decoder in STACKS
    )
    return row("base"), *stacks


TABLE = Table(
    name="depths",
    title="Deep encoder, shallow decoder",
    base=BASE,
    rows=rows("reduced:DepthsTransformer"),
    scales=tuple(replace(scale, divide_layers=1) for scale in (QUICK, SMALL)),
    decoding_speed=True,
)
PRE_NORM = replace(
    TABLE,
    name="depths-pre-norm",
    title=f"{TABLE.title}, pre-norm",
    base=override(BASE, model=variant_name("transformer.variants.layers:PreNormTransformer")),
    rows=rows("reduced:PreNormDepthsTransformer"),
)
