"""Where to normalise, at two depths and without a warm-up.

``norms`` trains each row to the end. ``norms-early`` has the same rows but stops after a sixth of
the steps, 2,000 at ``small``, so that many seeds can show how often each row diverges.
"""

from __future__ import annotations

from dataclasses import replace

from ablations.tables.table import Row, Table, claim, row
from ablations.tables.table3 import BASE
from transformer.config import override


def deep(shallow: Row, found: str) -> Row:
    """The same row with three times the layers; ``found`` says if it trained in its source."""
    changes = {**shallow.changes, "num_layers": 18}
    return replace(shallow, name=f"{shallow.name}-3N", reference=found, changes=changes)


# fmt: off
POST = row("post")
PRE = claim("pre",               "worse",  "layers:PreNormTransformer")   # Takase et al. 2022
B2T = claim("b2t",               "same",   "norms:B2TTransformer")        # Takase et al. 2022
PERI = claim("peri",             "better", "norms:PeriNormTransformer")   # Kim et al. 2025
DEEP_NORM = claim("deep-norm",   "same",   "layers:DeepNormTransformer")  # Wang et al. 2022
# Nguyen and Salazar 2019, for small corpora.
SCALE_NORM = claim("scale-norm", "better", "norms:ScaleNormTransformer")
ROWS = (
    POST, PRE, B2T, PERI, DEEP_NORM, SCALE_NORM,
    deep(POST,       "diverges"),   # Takase et al., as the next two
    deep(PRE,        "converges"),
    deep(B2T,        "converges"),
    deep(PERI,       ""),           # tried in language models (Kim et al.)
    deep(DEEP_NORM,  "converges"),  # Wang et al.
    deep(SCALE_NORM, ""),           # not tried so deep
    claim("post-no-warmup", "worse", method="schedules:NoWarmup"),  # Xiong et al. 2020
    claim("pre-no-warmup",  "same",  "layers:PreNormTransformer", "schedules:NoWarmup"),
)
# fmt: on

TABLE = Table(name="norms", title="Where to normalise", base=BASE, rows=ROWS)
EARLY = Table(
    name="norms-early",
    title="Where to normalise: the first sixth of training",
    base=override(BASE, max_steps=16_667),
    rows=ROWS,
)
