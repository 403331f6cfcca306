"""The built-in corpus, for a run without download."""

from __future__ import annotations

from experiments.records.experiment import Experiment
from transformer.config import Config, DataConfig, ModelConfig, TrainingConfig
from transformer.data.corpora.declared import CLDR_EN_DE

CLDR = Experiment(
    name="cldr",
    description="dates, amounts, names and numbers in words, built in; minutes on a CPU",
    config=Config(
        model=ModelConfig(
            vocab_size=500, num_layers=3, d_model=64, d_ff=256, num_heads=8, d_k=8, d_v=8
        ),
        data=DataConfig(corpus=CLDR_EN_DE, tokens_per_batch=600),
        training=TrainingConfig(
            max_steps=1_600,
            warmup_steps=250,
            schedule="linear",
            learning_rate_factor=0.35,
            checkpoint_every_steps=500,
            validate_every_steps=500,
        ),
    ),
    tags=("cldr",),
)
