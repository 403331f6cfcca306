"""Table 4 of the paper: English constituency parsing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.records.experiment import Experiment
from transformer.config import (
    Config,
    DataConfig,
    DecodingConfig,
    ModelConfig,
    TrainingConfig,
    override,
)
from transformer.corpus import Corpus
from transformer.errors import InputError
from transformer.parsing.treebanks import CRAFT, CRAFT_SHORT, penn_treebank

TREEBANK = "treebank:"


def paper(corpus: Corpus) -> Config:
    """Section 6.3: 4 layers of width 1024; everything else as in the base model.

    Heads are as wide as Table 3's for that width. The paper tuned dropout, learning rate and beam
    on section 22.
    """
    return Config(
        model=ModelConfig(vocab_size=16_000, num_layers=4, d_model=1024, d_k=128, d_v=128),
        data=DataConfig(corpus=corpus, max_length=512),
        training=TrainingConfig(average_checkpoints=5),
        # Output is at most 300 word-pieces longer than the input.
        decoding=DecodingConfig(beam_size=21, length_penalty=0.3, max_extra_length=300),
    )


# Recipes for a parser, one for minutes and one for two hours on one core with bf16; Table 4's
# scales use them too. A model cannot copy a word-piece that it has hardly seen, so vocabularies are
# small: of the short validation sentences, 3 % hold a piece seen fewer than 10 times in training
# (58 % with 3,000 pieces); of all validation sentences 4 % (33 % with 8,000).
SHORT_SENTENCES: dict[str, Any] = {
    "max_steps": 2_000,
    "vocab_size": 500,
    "tokens_per_batch": 1_000,
    "max_length": 128,
    "warmup_steps": 300,
    "schedule": "linear",
    "learning_rate_factor": 0.5,
    "clip_norm": 1.0,
    "beam_size": 4,
    "length_penalty": 0.3,
    "checkpoint_every_steps": 100,
    "validate_every_steps": 500,
}
ALL_SENTENCES: dict[str, Any] = {
    **SHORT_SENTENCES,
    "max_steps": 30_000,
    "vocab_size": 2_000,
    "tokens_per_batch": 2_000,
    "max_length": 384,
    "warmup_steps": 1_000,
    "beam_size": 8,  # chosen on validation sentences, with the penalty; wider gain nothing
    "length_penalty": 1.0,
    "checkpoint_every_steps": 500,
    "validate_every_steps": 2_000,
}
PARSING = {
    "craft_short": (
        "parsing of short sentences from CRAFT, a small model; minutes on one core",
        override(
            paper(CRAFT_SHORT),
            num_layers=2,
            d_model=128,
            d_ff=256,
            d_k=16,
            d_v=16,
            **SHORT_SENTENCES,
        ),
    ),
    "craft": (
        "parsing of CRAFT, a small model; two hours on one core with bf16",
        override(
            paper(CRAFT), num_layers=2, d_model=256, d_ff=512, d_k=32, d_v=32, **ALL_SENTENCES
        ),
    ),
}


def experiment_of_treebank(name: str) -> Experiment:
    """The Penn Treebank of ``treebank:FOLDER`` in the paper's setting."""
    folder = name.removeprefix(TREEBANK)
    if not folder:
        raise InputError("treebank: needs a folder, as in treebank:treebank_3/parsed/mrg/wsj")
    return Experiment(
        name="penn_treebank",
        description=f"parsing of the Penn Treebank in {folder} in the paper's setting (Table 4)",
        config=paper(penn_treebank(Path(folder))),
        tags=("paper", "table4", "parsing"),
    )
