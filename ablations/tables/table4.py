"""Table 4 of the paper: English constituency parsing.

``quick`` and ``small`` use CRAFT, which everyone may download; ``paper`` uses the Penn Treebank, in
the folder that ``PENN_TREEBANK`` names.
"""

from __future__ import annotations

from functools import partial

from ablations.tables.scale import scale
from ablations.tables.table import Table, row
from experiments.catalog.parsing import ALL_SENTENCES, SHORT_SENTENCES, paper
from transformer.parsing.treebanks import CRAFT, CRAFT_SHORT, PENN

published = partial(row, published=True)

# fmt: off
ROWS = (
    #                                               F1
    published("Vinyals & Kaiser 2014",      test_f1=88.3),
    published("Petrov 2006",                test_f1=90.4),
    published("Zhu 2013",                   test_f1=90.4),
    published("Dyer 2016",                  test_f1=91.7),
    row("transformer",                      test_f1=91.3),

    # With more text: semi-supervised; the last two are multi-task and generative.
    published("Zhu 2013, more text",              test_f1=91.3),
    published("Huang & Harper 2009, more text",   test_f1=91.3),
    published("McClosky 2006, more text",         test_f1=92.1),
    published("Vinyals & Kaiser 2014, more text", test_f1=92.1),
    published("Transformer, more text",           test_f1=92.7),
    published("Luong 2015",                       test_f1=93.0),
    published("Dyer 2016, generative",            test_f1=93.3),
)
# fmt: on

SCALES = (
    # Sentences of at most twelve words.
    scale("quick", corpus=CRAFT_SHORT, divide_widths=8, divide_layers=2, **SHORT_SENTENCES),
    scale("small", corpus=CRAFT, divide_widths=4, divide_layers=2, **ALL_SENTENCES),
    scale("paper", corpus=PENN),
)

TABLE = Table(
    name="table4",
    title="Table 4: English constituency parsing",
    base=paper(PENN),
    rows=ROWS,
    measures=("perplexity", "f1", "test_f1"),
    scales=SCALES,
)
