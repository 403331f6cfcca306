"""Table 4 of the paper: English constituency parsing, of CRAFT and of a user's Penn Treebank."""

from __future__ import annotations

from pathlib import Path

from experiments.run.experiment import Experiment
from transformer.config import (
    Config,
    DataConfig,
    DecodingConfig,
    ModelConfig,
    TrainingConfig,
    override,
)
from transformer.corpus import Corpus
from transformer.data.corpora.treebanks import CRAFT as CRAFT_CORPUS
from transformer.data.corpora.treebanks import CRAFT_SHORT as CRAFT_SHORT_CORPUS
from transformer.data.corpora.treebanks import penn_treebank
from transformer.errors import InputError

TREEBANK = "treebank:"


def paper(corpus: Corpus) -> Config:
    """Section 6.3: 4 layers of width 1024, with the other sizes of the big model of Table 2.

    The paper does not state those sizes, and tuned dropout, learning rate and beam on section 22.
    """
    return Config(
        model=ModelConfig(
            vocab_size=16_000, num_layers=4, d_model=1024, d_ff=4096, num_heads=16, dropout=0.1
        ),
        data=DataConfig(corpus=corpus, max_length=512),
        training=TrainingConfig(average_checkpoints=5),
        # Output up to input + 300.
        decoding=DecodingConfig(beam_size=21, length_penalty=0.3, max_extra_length=300),
    )


CRAFT_SHORT = Experiment(
    name="craft_short",
    description="parsing of short sentences from CRAFT, a small model; ten minutes on two cores",
    config=Config(
        model=ModelConfig(
            vocab_size=3_000,
            num_layers=2,
            d_model=128,
            d_ff=512,
            num_heads=4,
            d_k=32,
            d_v=32,
            dropout=0.1,
        ),
        data=DataConfig(corpus=CRAFT_SHORT_CORPUS, tokens_per_batch=1_000, max_length=128),
        training=TrainingConfig(
            max_steps=4_000,
            warmup_steps=300,
            learning_rate_factor=0.5,
            schedule="linear",
            clip_norm=1.0,
            average_checkpoints=5,
            checkpoint_every_steps=100,
            validate_every_steps=500,
        ),
        decoding=DecodingConfig(length_penalty=0.3, max_extra_length=60),
    ),
    tags=("parsing",),
)
CRAFT = Experiment(
    name="craft",
    description="parsing of CRAFT, a small model; a night on two cores, an hour on a GPU",
    config=override(
        CRAFT_SHORT.config,
        corpus=CRAFT_CORPUS,
        vocab_size=8_000,
        num_layers=4,
        d_model=256,
        d_ff=1024,
        d_k=64,
        d_v=64,
        tokens_per_batch=4_000,
        max_length=384,
        max_steps=10_000,
        warmup_steps=1_000,
        checkpoint_every_steps=500,
        validate_every_steps=2_000,
        max_extra_length=300,
    ),
    tags=("parsing",),
)


def experiment_of_treebank(name: str) -> Experiment:
    """The Penn Treebank of ``treebank:FOLDER`` in the paper's setting.

    Raises:
        InputError: if the folder lacks sections.
    """
    folder = name.removeprefix(TREEBANK)
    if not folder:
        raise InputError("treebank: needs a folder, as in treebank:treebank_3/parsed/mrg/wsj")
    return Experiment(
        name="penn_treebank",
        description=f"parsing of the Penn Treebank in {folder} in the paper's setting (Table 4)",
        config=paper(penn_treebank(Path(folder))),
        tags=("paper", "table4", "parsing"),
    )
