"""Parliament and news, EN-DE, from a folder of one's own: the paper's sets at a laptop's size."""

from __future__ import annotations

from experiments.experiment import Experiment
from transformer.config import Config, Corpus, DataConfig, ModelConfig, TrainingConfig
from transformer.data.news import NEWS_EN_DE, NEWS_TATOEBA_EN_DE


def recipe(corpus: Corpus) -> Config:
    """For two cores and half an hour: as ``multi30k``'s, wider, for sentences twice as long."""
    return Config(
        model=ModelConfig(
            vocab_size=8_000,
            num_layers=3,
            d_model=192,
            d_ff=768,
            num_heads=4,
            d_k=48,
            d_v=48,
            dropout=0.1,
        ),
        data=DataConfig(corpus=corpus, tokens_per_batch=2_000, max_length=128),
        training=TrainingConfig(
            max_steps=4_000,
            warmup_steps=500,
            learning_rate_factor=0.5,
            schedule="linear",
            clip_norm=1.0,
            average_checkpoints=5,
            checkpoint_every_steps=200,
            validate_every_steps=1_000,
        ),
    )


NEWS = Experiment(
    name="news_en_de",
    description="parliament and older news in a folder of yours (DATA_FILES), EN-DE",
    config=recipe(NEWS_EN_DE),
    tags=("news",),
)
NEWS_TATOEBA = Experiment(
    name="news_tatoeba_en_de",
    description="the same with Tatoeba's short sentences",
    config=recipe(NEWS_TATOEBA_EN_DE),
    tags=("news",),
)
