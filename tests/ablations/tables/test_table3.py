"""The declaration against the paper, typed out once more by hand."""

from __future__ import annotations

import pytest

from ablations.tables.changes import columns
from ablations.tables.scales import PAPER
from ablations.tables.table import Reported
from ablations.tables.table3 import BASE, TABLE
from transformer.config import DecodingConfig, ModelConfig, TrainingConfig

# After the settings: PPL, BLEU and millions of parameters.
FIGURES = """
row num_layers d_model d_ff num_heads d_k d_v dropout label_smoothing max_steps
base     6  512 2048  8  64  64 0.1 0.1 100000 4.92 25.8  65
A-h1     6  512 2048  1 512 512 0.1 0.1 100000 5.29 24.9   -
A-h4     6  512 2048  4 128 128 0.1 0.1 100000 5.00 25.5   -
A-h16    6  512 2048 16  32  32 0.1 0.1 100000 4.91 25.8   -
A-h32    6  512 2048 32  16  16 0.1 0.1 100000 5.01 25.4   -
B-dk16   6  512 2048  8  16  64 0.1 0.1 100000 5.16 25.1  58
B-dk32   6  512 2048  8  32  64 0.1 0.1 100000 5.01 25.4  60
C-N2     2  512 2048  8  64  64 0.1 0.1 100000 6.11 23.7  36
C-N4     4  512 2048  8  64  64 0.1 0.1 100000 5.19 25.3  50
C-N8     8  512 2048  8  64  64 0.1 0.1 100000 4.88 25.5  80
C-d256   6  256 2048  8  32  32 0.1 0.1 100000 5.75 24.5  28
C-d1024  6 1024 2048  8 128 128 0.1 0.1 100000 4.66 26.0 168
C-ff1024 6  512 1024  8  64  64 0.1 0.1 100000 5.12 25.4  53
C-ff4096 6  512 4096  8  64  64 0.1 0.1 100000 4.75 26.2  90
D-p0.0   6  512 2048  8  64  64 0.0 0.1 100000 5.77 24.6   -
D-p0.2   6  512 2048  8  64  64 0.2 0.1 100000 4.95 25.5   -
D-ls0.0  6  512 2048  8  64  64 0.1 0.0 100000 4.67 25.3   -
D-ls0.2  6  512 2048  8  64  64 0.1 0.2 100000 5.47 25.7   -
E        6  512 2048  8  64  64 0.1 0.1 100000 4.92 25.7   -
big      6 1024 4096 16  64  64 0.3 0.1 300000 4.33 26.4 213
"""
HEAD, *ROWS = [line.split() for line in FIGURES.strip().splitlines()]


@pytest.mark.parametrize("figures", ROWS, ids=lambda figures: figures[0])
def test_a_row_has_the_papers_settings_and_figures(figures: list[str]) -> None:
    row = next(row for row in TABLE.rows if row.name == figures[0])
    found = columns(TABLE.configure(row, PAPER))
    positions = found.pop("positions")
    assert positions == ("learned" if row.name == "E" else "sinusoidal")
    assert [found[name] for name in HEAD[1:]] == [float(figure) for figure in figures[1:10]]
    millions = None if figures[12] == "-" else int(figures[12])
    assert row.reported == Reported(float(figures[10]), float(figures[11]), millions)


def test_rows_are_in_the_papers_order_and_name_only_what_differs_from_the_base() -> None:
    assert [row.name for row in TABLE.rows] == [figures[0] for figures in ROWS]
    base = columns(BASE)
    for row in TABLE.rows:
        assert all(value != base[name] for name, value in row.changes.items()), row.name


def test_what_table_3_does_not_vary_is_pinned() -> None:
    assert BASE.model == ModelConfig(vocab_size=37_000, max_positions=512)
    assert BASE.training == TrainingConfig(
        seed=1, warmup_steps=4_000, learning_rate_factor=1.0,
        adam_beta1=0.9, adam_beta2=0.98, adam_epsilon=1e-9, clip_norm=None, precision="auto",
        average_checkpoints=1, also_average=None,
        checkpoint_every_steps=1_000, checkpoint_every_minutes=None,
        validate_every_steps=1_000, log_every_steps=50,
    )  # fmt: skip
    assert BASE.decoding == DecodingConfig(beam_size=4, length_penalty=0.6, max_extra_length=50)
    assert BASE.data.tokens_per_batch == 25_000
    assert BASE.data.corpus.name == "wmt14_en_de"
