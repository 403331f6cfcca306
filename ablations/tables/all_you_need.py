"""Parts of the Transformer left out, shared or simplified."""

from __future__ import annotations

from ablations.tables.table import Table, claim, row
from ablations.tables.table3 import BASE

NETWORKS = "reduced:FewerNetworksTransformer"
ATTENTIONS = "reduced:FewerAttentionsTransformer"
ONE_HEAD = "reduced:OneHeadTransformer"

# fmt: off
ROWS = (
    row("base"),

    # Pires et al. 2023, tables 2 to 4, of Transformer big.
    claim("no-ffn-decoder",   "worse",  NETWORKS, options={"decoder": "none"}),
    claim("no-ffn-encoder",   "worse",  NETWORKS, options={"encoder": "none"}),
    claim("no-ffn",           "worse",  NETWORKS, options={"encoder": "none", "decoder": "none"}),
    claim("one-ffn",          "worse",  NETWORKS,
          options={"encoder": "shared", "decoder": "shared"}),
    claim("one-wide-ffn",     "better", NETWORKS,
          options={"encoder": "shared", "decoder": "none", "wide": True}),

    # Raganato et al. 2020, and Zhang et al. 2018.
    claim("fixed-heads",      "same",   "fixed_weights:FixedHeadsTransformer"),
    claim("averaging",        "same",   "fixed_weights:AverageAttentionTransformer"),

    # Domhan 2018: without the decoder's self-attention a model "performs well", but the encoder's
    # is much more important. Cross-attention in the last layer alone is our own question.
    claim("no-self-decoder",  "same",   ATTENTIONS, options={"decoder": False}),
    claim("no-self-encoder",  "worse",  ATTENTIONS, options={"encoder": False}),
    claim("cross-last",       "",       ATTENTIONS, options={"cross": "last"}),

    # Michel et al. 2019, who kept one head of a trained model; these are trained with one.
    claim("one-head-encoder", "same",   ONE_HEAD, options={"part": "encoder"}),
    claim("one-head-decoder", "same",   ONE_HEAD, options={"part": "decoder"}),
    claim("one-head-cross",   "worse",  ONE_HEAD, options={"part": "cross"}),
)
# fmt: on

TABLE = Table(
    name="all-you-need",
    title="Attention Is All You Need: what of the Transformer is needed?",
    base=BASE,
    rows=ROWS,
)
