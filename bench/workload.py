"""Random sentences as long as real ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from transformer.config import EOS_ID, Config, override
from transformer.data.batches import Batch, BatchPlan, collate
from transformer.data.buckets import Buckets
from transformer.data.store import EncodedPairs, starts_of
from transformer.training.method import make_module
from transformer.training.module import TransformerModule
from transformer.training.packing import PackedBatch
from transformer.training.step_kinds import StepKind
from transformer.training.whole_step import WholeStep

Step = Callable[[Batch], None]
# The kinds of steps, and packed ones with less: no graph, and no compiler either.
Way = StepKind | Literal["packed, not captured", "packed, not compiled"]

_LENGTHS = Path(__file__).parent / "lengths"
_SEED = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """Sentences as long as those of a real text, filled with random word-pieces.

    ``text`` names a table of the lengths of pairs, including the end of sentence: ``multi30k`` is
    its training text in 8,000 word-pieces; ``news`` is newstest 2012, 2013 and 2014, EN-DE, in
    37,000. A short text is repeated in ``copies``: 9,006 pairs of news fill large batches to 74 %,
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
        pairs = self.pairs()
        plan = BatchPlan(Buckets.of(pairs.lengths), self.tokens_per_batch, _SEED)
        return [collate(pairs, plan.batch(x), number=x).to(device) for x in range(number)]


def make_step(module: TransformerModule) -> Step:
    """A function that trains ``module`` with one batch, without a Trainer."""
    module.train()
    optimizer = module.configure_optimizers()["optimizer"]

    def step(batch: Batch) -> None:
        smoothed, _ = module.training_loss(batch)
        optimizer.zero_grad()
        (smoothed / batch.target_tokens).backward()
        optimizer.step()

    return step


def make_step_of(config: Config, way: Way, device: torch.device) -> Step:
    """A function that trains a model of ``config`` in one way, without a Trainer.

    A batch is packed, which training does beforehand, when it occurs for the first time.
    """
    module = make_module(override(config, compile=way == "compiled")).to(device)
    if way in ("plain", "compiled"):
        return make_step(module)
    optimizer = module.train().configure_optimizers()["optimizer"]
    whole = WholeStep(module.model, config, packs=way != "captured")
    whole.begin(optimizer, captures=way in ("captured", "packed"))
    prepared: dict[int, Batch | PackedBatch] = {}

    def step(batch: Batch) -> None:
        if batch.number not in prepared:
            prepared[batch.number] = whole.prepare(batch.to("cpu")).to(device)
        with uncompiled() if way == "packed, not compiled" else nullcontext():
            whole(prepared[batch.number])

    return step


def uncompiled() -> AbstractContextManager[object]:
    """A context in which functions that would be compiled run as they are."""
    return torch.compiler.set_stance("force_eager")


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
