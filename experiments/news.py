"""Parliament and news, EN-DE, from a folder of one's own: the paper's sets at a laptop's size."""

from __future__ import annotations

from experiments import multi30k
from experiments.experiment import Experiment
from transformer.config import Config, override
from transformer.corpus import Corpus
from transformer.data.corpora.news import NEWS_EN_DE, NEWS_TATOEBA_EN_DE


def recipe(corpus: Corpus) -> Config:
    """The small model of ``multi30k`` for sentences twice as long: some three epochs of parliament
    and news, a quarter of an hour on two cores.
    """
    return override(
        multi30k.recipe(corpus),
        tokens_per_batch=2_000,
        max_steps=4_000,
        warmup_steps=500,
        checkpoint_every_steps=200,
        validate_every_steps=1_000,
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
