"""Table 3 of the paper: variations on the Transformer.

Blank cells of the paper are arguments left out here. Perplexity is per word-piece.
"""

from __future__ import annotations

from ablations.tables.table import Table, row
from transformer.config import Config, DataConfig
from transformer.data.corpora.declared import WMT14_EN_DE

# The defaults are the paper's values, which tests/ablations/tables/test_table3.py checks.
BASE = Config(data=DataConfig(corpus=WMT14_EN_DE))
"""The paper's base model and training."""

# fmt: off
ROWS = (
    #               PPL   BLEU  params
    row("base",     4.92, 25.8, 65),

    row("A-h1",     5.29, 24.9,      num_heads=1,  d_k=512, d_v=512),
    row("A-h4",     5.00, 25.5,      num_heads=4,  d_k=128, d_v=128),
    row("A-h16",    4.91, 25.8,      num_heads=16, d_k=32,  d_v=32),
    row("A-h32",    5.01, 25.4,      num_heads=32, d_k=16,  d_v=16),

    row("B-dk16",   5.16, 25.1, 58,  d_k=16),
    row("B-dk32",   5.01, 25.4, 60,  d_k=32),

    row("C-N2",     6.11, 23.7, 36,  num_layers=2),
    row("C-N4",     5.19, 25.3, 50,  num_layers=4),
    row("C-N8",     4.88, 25.5, 80,  num_layers=8),
    row("C-d256",   5.75, 24.5, 28,  d_model=256,  d_k=32,  d_v=32),
    row("C-d1024",  4.66, 26.0, 168, d_model=1024, d_k=128, d_v=128),
    row("C-ff1024", 5.12, 25.4, 53,  d_ff=1024),
    row("C-ff4096", 4.75, 26.2, 90,  d_ff=4096),

    row("D-p0.0",   5.77, 24.6,      dropout=0.0),
    row("D-p0.2",   4.95, 25.5,      dropout=0.2),
    row("D-ls0.0",  4.67, 25.3,      label_smoothing=0.0),
    row("D-ls0.2",  5.47, 25.7,      label_smoothing=0.2),

    row("E",        4.92, 25.7,      positions="learned"),

    row("big",      4.33, 26.4, 213, d_model=1024, d_ff=4096, num_heads=16, dropout=0.3,
                                     max_steps=300_000),
)
# fmt: on

TABLE = Table(
    name="table3",
    title="Table 3: variations on the Transformer architecture",
    base=BASE,
    rows=ROWS,
)
