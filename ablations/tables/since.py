"""Changes to the Transformer since 2017, one per row."""

from __future__ import annotations

from dataclasses import replace

from ablations.tables.table import Table, claim, row
from ablations.tables.table3 import BASE
from ablations.tables.tune import Tune

# References are from Narang et al. 2021, table 1, who tried many changes, or from the source named.
# fmt: off
ROWS = (
    row("base"),
    claim("pre-norm",      "same",   "layers:PreNormTransformer"),          # Xiong et al. 2020
    claim("rms-norm",      "better", "layers:RMSNormTransformer"),          # Narang et al.
    claim("deep-norm",     "same",   "layers:DeepNormTransformer"),         # Wang et al. 2022
    claim("re-zero",       "worse",  "layers:ReZeroTransformer"),           # Narang et al.
    claim("gelu",          "same",   "layers:GeluTransformer"),      # Narang et al.
    claim("swiglu",        "better", "layers:SwiGLUTransformer"),    # Narang et al.
    claim("rotary",        "better", "positions:RotaryTransformer"),       # Su et al. 2021
    claim("relative",      "better", "positions:RelativeTransformer"),     # Shaw et al. 2018
    claim("alibi",         "same",   "positions:AlibiTransformer"),        # Press et al. 2022
    claim("no-positions",  "worse",  "positions:NoPositionsTransformer"),  # Haviv et al. 2022
    claim("multi-query",   "worse",  "attention:MultiQueryTransformer"),   # Shazeer 2019
    claim("grouped-query", "same",   "attention:GroupedQueryTransformer"), # Ainslie et al. 2023
    claim("qk-norm",       "better", "attention:QueryKeyNormTransformer"), # Henry et al. 2020
    claim("no-biases",     "same",   "layers:UnbiasedTransformer"),  # Raffel et al. 2020
    claim("untied",        "same",   "modern:UntiedTransformer"),          # Press and Wolf 2017
    claim("adamw-cosine",  "better", method="optimizers:AdamW",            # Loshchilov and
          schedule="cosine"),                                              # Hutter 2019
    claim("muon",          "better", method="optimizers:Muon"),            # Jordan et al. 2024
    claim("modern",        "better", "modern:ModernTransformer",           # Touvron et al. 2023
          "optimizers:AdamW", schedule="cosine", adam_beta2=0.95, clip_norm=1.0),
)
# fmt: on

TABLE = Table(name="since", title="Changes to the Transformer since 2017", base=BASE, rows=ROWS)
# The same changes, each with its own learning rate.
TUNED = replace(TABLE, name="since-tuned", title=f"{TABLE.title}, tuned", tune=Tune())
