"""The built-in scales, at which every table can be run.

A small version of the paper's experiment keeps its dimensionless numbers, such as epochs, except
for the warm-up and dropout: docs/tables.md says why, and how recipes are chosen.
"""

from __future__ import annotations

from ablations.tables.scale import scale
from transformer.data.corpora.declared import (
    CLDR_EN_DE,
    MULTI30K_EN_DE,
    WMT14_EN_DE,
    WMT14_EN_DE_SMALL,
)

# A rehearsal: short phrases and small batches, so that every row learns within minutes.
QUICK = scale(
    "quick",
    corpus=CLDR_EN_DE,
    divide_widths=8,
    divide_layers=2,
    divide_dropout=2,
    max_steps=1_600,
    vocab_size=500,
    tokens_per_batch=200,
    max_length=100,
    warmup_steps=500,
    schedule="linear",
    learning_rate_factor=0.5,
    clip_norm=1.0,
    checkpoint_every_steps=400,
    validate_every_steps=400,
)

# 20 epochs; 25 target tokens seen and 1.2 distinct ones per parameter; warm-up 13 %. With batches
# of 500 tokens, the row with the most layers, C-N8, would stay on a plateau.
SMALL = scale(
    "small",
    corpus=MULTI30K_EN_DE,
    divide_widths=8,
    divide_layers=2,
    divide_dropout=2,
    max_steps=12_000,
    vocab_size=2_000,
    tokens_per_batch=1_000,
    warmup_steps=1_600,
    clip_norm=1.0,
    also_average=5,
    checkpoint_every_steps=500,
    validate_every_steps=1_000,
)

# For a few hours on one GPU. Estimated: 21 epochs; 32 target tokens seen and 1.5 distinct ones per
# parameter; warm-up 8 %.
MEDIUM = scale(
    "medium",
    corpus=WMT14_EN_DE_SMALL,
    divide_widths=4,
    max_steps=20_000,
    vocab_size=8_000,
    tokens_per_batch=6_000,
    warmup_steps=1_600,
    clip_norm=1.0,
    also_average=5,
    checkpoint_every_steps=500,
    validate_every_steps=1_000,
)

# Section 6.1 averages the last five checkpoints of a base model and the last 20 of a big one, which
# are ten minutes apart, though not for Table 3: see experiments/catalog/translation.py.
PAPER = scale(
    "paper",
    corpus=WMT14_EN_DE,
    also_average=5,
    checkpoint_every_steps=1_500,
    longer={"also_average": 20, "checkpoint_every_steps": 600},
)

SCALES = (QUICK, SMALL, MEDIUM, PAPER)
