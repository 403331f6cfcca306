"""The scales that every table can be run at."""

from __future__ import annotations

from ablations.scale import scale
from transformer.data.corpora.declared import CLDR_EN_DE, MULTI30K_EN_DE, WMT14_EN_DE

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

SMALL = scale(
    "small",
    corpus=MULTI30K_EN_DE,
    divide_widths=4,
    divide_layers=2,
    max_steps=3_000,
    vocab_size=4_000,
    tokens_per_batch=1_000,
    warmup_steps=300,
    schedule="linear",
    learning_rate_factor=0.5,
    clip_norm=1.0,
    also_average=5,
    checkpoint_every_steps=100,
    validate_every_steps=500,
)

# Section 6.1 averages the last five checkpoints of a base model and the last 20 of a big one,
# though not for this table, each ten minutes after the one before: see experiments/paper.py.
PAPER = scale(
    "paper",
    corpus=WMT14_EN_DE,
    also_average=5,
    checkpoint_every_steps=1_500,
    longer={"also_average": 20, "checkpoint_every_steps": 600},
)

SCALES = (QUICK, SMALL, PAPER)
