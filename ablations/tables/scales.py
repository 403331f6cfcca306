"""The scales that every table can be run at.

A small model of the paper's experiment keeps its numbers without units, not its absolute ones: how
often the text is passed over, how many tokens are seen for each parameter, how much of the run is
warm-up. The one number that is kept as it is is the warm-up in steps, as far as it goes: a deep
post-norm stack that is warmed up over fewer than about 1,500 steps may never begin to learn. The
report of a table shows these numbers beside the paper's. Recipes are chosen on the perplexity of
the base row alone, never on how well the rows agree with the paper.
"""

from __future__ import annotations

from ablations.tables.scale import scale
from transformer.data.corpora.declared import (
    CLDR_EN_DE,
    MULTI30K_EN_DE,
    WMT14_EN_DE,
    WMT14_EN_DE_SMALL,
)

QUICK = scale(
    "quick",
    corpus=CLDR_EN_DE,
    divide_widths=8,
    divide_layers=2,
    max_steps=800,
    vocab_size=1_200,
    tokens_per_batch=600,
    warmup_steps=250,
    schedule="linear",
    learning_rate_factor=0.35,
    checkpoint_every_steps=400,
    validate_every_steps=400,
)

# 13 epochs; 16 target tokens seen and 1.2 distinct ones per parameter; warm-up 10 %.
SMALL = scale(
    "small",
    corpus=MULTI30K_EN_DE,
    divide_widths=8,
    divide_layers=2,
    max_steps=16_000,
    vocab_size=2_000,
    tokens_per_batch=500,
    warmup_steps=1_600,
    clip_norm=1.0,
    also_average=5,
    checkpoint_every_steps=500,
    validate_every_steps=1_000,
)

# For one GPU and some hours. Estimated: 21 epochs; 32 target tokens seen and 1.5 distinct ones per
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

# Section 6.1 averages the last five checkpoints of a base model and the last 20 of a big one, written
# every ten minutes, though not for this table: see experiments/catalog/paper.py.
PAPER = scale(
    "paper",
    corpus=WMT14_EN_DE,
    also_average=5,
    checkpoint_every_steps=1_500,
    longer={"also_average": 20, "checkpoint_every_steps": 600},
)

SCALES = (QUICK, SMALL, MEDIUM, PAPER)
