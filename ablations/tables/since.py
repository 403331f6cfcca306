"""Changes to the Transformer since 2017, one a row."""

from __future__ import annotations

from typing import Unpack

from ablations.tables.changes import Changes
from ablations.tables.table import Row, Table, row
from ablations.tables.table3 import BASE


def change(
    name: str,
    found: str,
    model: str | None = None,
    method: str | None = None,
    **changes: Unpack[Changes],
) -> Row:
    """A row with what its source found, or Narang et al. 2021, table 1, who tried many."""
    model, method = (x and f"transformer.variants.{x}" for x in (model, method))
    return row(name, model=model, method=method, reference=found, **changes)


# fmt: off
ROWS = (
    row("base"),
    change("pre-norm",      "same",   "layers:PreNormTransformer"),          # Xiong et al. 2020
    change("rms-norm",      "better", "layers:RMSNormTransformer"),          # Narang et al.
    change("deep-norm",     "same",   "layers:DeepNormTransformer"),         # Wang et al. 2022
    change("re-zero",       "worse",  "layers:ReZeroTransformer"),           # Narang et al.
    change("gelu",          "same",   "layers:GeluTransformer"),      # Narang et al.
    change("swiglu",        "better", "layers:SwiGLUTransformer"),    # Narang et al.
    change("rotary",        "better", "positions:RotaryTransformer"),       # Su et al. 2021
    change("relative",      "better", "positions:RelativeTransformer"),     # Shaw et al. 2018
    change("alibi",         "same",   "positions:AlibiTransformer"),        # Press et al. 2022
    change("no-positions",  "worse",  "positions:NoPositionsTransformer"),  # Haviv et al. 2022
    change("multi-query",   "worse",  "attention:MultiQueryTransformer"),   # Shazeer 2019
    change("grouped-query", "same",   "attention:GroupedQueryTransformer"), # Ainslie et al. 2023
    change("qk-norm",       "better", "attention:QueryKeyNormTransformer"), # Henry et al. 2020
    change("no-biases",     "same",   "layers:UnbiasedTransformer"),  # Raffel et al. 2020
    change("untied",        "same",   "modern:UntiedTransformer"),          # Press and Wolf 2017
    change("adamw-cosine",  "better", method="optimizers:AdamW",            # Loshchilov and
           schedule="cosine"),                                              # Hutter 2019
    change("muon",          "better", method="optimizers:Muon"),            # Jordan et al. 2024
    change("modern",        "better", "modern:ModernTransformer",           # Touvron et al. 2023
           "optimizers:AdamW", schedule="cosine", adam_beta2=0.95, clip_norm=1.0),
)
# fmt: on

TABLE = Table(name="since", title="Changes to the Transformer since 2017", base=BASE, rows=ROWS)
