"""What is measured on: sizes of models, and sentences as long as real ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from transformer.config import EOS_ID, Config, DataConfig, ModelConfig, TrainingConfig
from transformer.corpus import Corpus, ParallelText, TextFile
from transformer.data.batches import Batch, BatchPlan, collate
from transformer.data.buckets import Buckets
from transformer.data.store import EncodedPairs, starts_of

Size = Literal["tiny", "base", "big"]

SIZES: dict[str, ModelConfig] = {
    "tiny": ModelConfig(num_layers=3, d_model=128, d_ff=512, num_heads=8, d_k=16, d_v=16),
    "base": ModelConfig(),
    "big": ModelConfig(d_model=1024, d_ff=4096, num_heads=16, dropout=0.3),
}

_LENGTHS = Path(__file__).parent / "lengths"
_SEED = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """Sentences as long as those of a real text, filled with random word-pieces.

    ``text`` names a table of the lengths of pairs, including the end of sentence: ``multi30k`` is
    its training text in 8,000 word-pieces; ``news`` is newstest 2012, 2013 and 2014, EN-DE, in
    37,000. Of a short text, ``copies`` are taken: 9,006 pairs of news fill large batches to 74 %,
    32 copies to 90 % as a corpus of millions does.
    """

    text: str
    vocab_size: int
    tokens_per_batch: int
    copies: int = 1

    def lengths(self) -> npt.NDArray[np.int64]:
        """``(pairs, 2)``, in no particular order."""
        table = np.loadtxt(_LENGTHS / f"{self.text}.csv", np.int64, delimiter=",", skiprows=1)
        lengths = np.repeat(table[:, :2], table[:, 2] * self.copies, axis=0)
        return np.random.default_rng(_SEED).permutation(lengths)

    def pairs(self, number: int | None = None) -> EncodedPairs:
        """The first ``number`` pairs, or all."""
        lengths = self.lengths()[:number]
        random = np.random.default_rng(_SEED)
        tokens = random.integers(EOS_ID + 1, self.vocab_size, lengths.sum())
        tokens[lengths.ravel().cumsum() - 1] = EOS_ID
        return EncodedPairs(tokens, lengths, starts_of(lengths, 0))

    def batches(self, number: int, device: torch.device) -> list[Batch]:
        """The first batches of training."""
        return list(islice(self.all_batches(device), number))

    def all_batches(self, device: torch.device) -> Iterator[Batch]:
        """The batches of training, epoch after epoch, without end."""
        pairs = self.pairs()
        plan = BatchPlan(Buckets.of(pairs.lengths), self.tokens_per_batch, _SEED)
        for number in count():
            yield collate(pairs, plan.batch(number), number=number).to(device)


def workload(device: torch.device) -> Workload:
    """Captions in small batches for a CPU, news in the paper's batches for a GPU."""
    if device.type == "cpu":
        return Workload(text="multi30k", vocab_size=8_000, tokens_per_batch=2_000)
    return Workload(text="news", vocab_size=37_000, tokens_per_batch=25_000, copies=32)


def config_of(size: Size, load: Workload) -> Config:
    """The configuration of a model of that size; its corpus is never read."""
    nothing = TextFile(location="builtin:none/none")
    text = ParallelText(source=nothing, target=nothing)
    corpus = Corpus(
        name=load.text,
        source_language="en",
        target_language="de",
        licence="",
        train=(text,),
        valid=text,
    )
    return Config(
        model=dataclasses.replace(SIZES[size], vocab_size=load.vocab_size),
        data=DataConfig(corpus=corpus, tokens_per_batch=load.tokens_per_batch),
        training=TrainingConfig(seed=_SEED),
    )
